"""What only a launcher says: its arguments and variables. Where a side lacks it, a rank's are no stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.names import names_of
from sglang_probe.figures import listed
from sglang_probe.timeline.model import Run

SPEAKERS: Final = ("launcher", "ranks", "detokenizer or another process")
"""Who says what a run was made of: the first of them that left a file."""
LAUNCHER: Final = SPEAKERS[0]
ONLY_ITS: Final = frozenset({"arguments given", "variables"})
"""Groups of facts that differ between a launcher and its children by nature: it sets variables for them."""
USED: Final = "used"
"""The one fact of the visible devices that ranks say, and no variable."""
MANY: Final = 4


class Lack(NamedTuple):
    """Sides that lack the process that speaks for another side; none is named where all lack the launcher."""

    sides: tuple[str, ...]
    what: str

    @property
    def reason(self) -> str:
        """Return why a fact is not compared."""
        if not self.sides:
            return f"not compared: no side has its {self.what}'s file"
        lack = "lacks its" if len(self.sides) == 1 else "lack their"
        return f"not compared: {listed(self.sides, MANY)} {lack} {self.what}"

    @property
    def note(self) -> str:
        """Return the same as a sentence of its own."""
        return (
            f"{self.reason}, which alone says the arguments given and the variables of the start;"
            " what is in effect is compared where ranks say it"
        )


def lack_of(runs: Sequence[Run]) -> Lack | None:
    """Return which sides lack the speaker that another side has, or all the launcher; None where nothing is lacking."""
    speakers = [_speaker(run) for run in runs]
    best = min(speakers)
    if best == max(speakers):
        events = all(run.source != "log" for run in runs)  # no log has a launcher's file
        return Lack((), LAUNCHER) if best and events else None
    sides = (name for name, one in zip(names_of(len(runs)), speakers, strict=True) if one != best)
    return Lack(tuple(sides), SPEAKERS[best])


def _speaker(run: Run) -> int:
    if any(process.role == "launcher" for process in run.processes):
        return 0
    return 1 if any(process.label is not None for process in run.processes) else 2


def not_compared(row: Row, lack: Lack | None) -> Row:
    """Return a row as no difference where it is a launcher's to say, and a side lacks it."""
    its = row.group == "versions" and None in row.values
    if lack is None or not row.differs or not (its or is_launchers(row)):
        return row
    return msgspec.structs.replace(row, differs=False, counts=False, why=lack.reason)


def is_launchers(row: Row) -> bool:
    """Say whether a fact is only a launcher's to say: a flag as given, or a variable."""
    return row.group in ONLY_ITS or (row.group == "visible devices" and row.key != USED)
