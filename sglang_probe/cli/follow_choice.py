"""Which run of a path is followed: the one that goes on; once followed, that one to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sglang_probe.report.outcome import headline
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import ranks_of

SILENCE_S: Final = 1800.0
"""After so long without a word, of a start whose processes cannot be asked, nothing more is expected: it is torch's own
limit for a collective."""
TOLD: Final = frozenset({"ready", "failed", "died"})


class Found(NamedTuple):
    """A run that a path holds."""

    run: Run
    places: tuple[str, ...]
    """Its directories or files."""


class Choice:
    """Chooses again each time a path was read, and stays with what it chose."""

    def __init__(self) -> None:
        self.followed: Found | None = None
        self.serial = 0
        """How many runs were followed so far."""
        self.passed: dict[tuple[str, int], str] = {}
        """Runs that are not followed, and what became of them."""
        self._looked = False

    def among(self, found: Sequence[Found], silence: Callable[[Found], float], watched_s: float) -> Found | None:
        """Return which run of a directory of runs to follow: one that goes on, or that ended while it was watched.

        `silence`: for how long nothing was written of a run, in seconds; `watched_s`: since when it is watched.
        """
        runs = [one for one in found if key_of(one.run) not in self.passed]
        followed = next((one for one in runs if self._is_followed(one.run)), None)
        if followed is not None and (ranks_of(followed.run) or not is_over(followed.run, silence(followed))):
            return self._take(followed)
        going_on = [one for one in runs if not is_over(one.run, silence(one))]
        chosen = max(going_on, key=_worth, default=None)
        for one in runs:
            is_old = not self._looked or silence(one) > watched_s
            if is_over(one.run, silence(one)):
                if not ranks_of(one.run):
                    self._pass(one, "it ended before any rank began")
                elif is_old:
                    self._pass(one, headline(one.run))
            elif one is not chosen and is_old and one.run.outcome == "ready":
                self._pass(one, headline(one.run))
        self._looked = True
        left = [one for one in runs if key_of(one.run) not in self.passed]
        return self._take(chosen or (max(left, key=_worth) if left else None))

    def last(self, found: Sequence[Found]) -> Found | None:
        """Return which launch of one run directory, or start of one log, to follow: the last, or the one before that is
        followed and has an end to be told."""
        self._looked = True
        followed = next((one for one in found if self._is_followed(one.run)), None)
        if followed is not None and (followed.run.outcome in TOLD or any(map(_lives, followed.run.processes))):
            return self._take(followed)
        return self._take(found[-1] if found else None)

    def nothing(self) -> None:
        """Note that there was nothing at the first look: what comes from now on began while it was watched."""
        self._looked = True

    def _take(self, found: Found | None) -> Found | None:
        if found is not None:
            self.serial += not self._is_followed(found.run)
            self.followed = found
        return found

    def _pass(self, one: Found, said: str) -> None:
        over = "is over" if one.run.outcome != "ready" or all(p.alive is False for p in one.run.processes) else "is up"
        self.passed[key_of(one.run)] = f"{one.run.run_id} {over}: {said} (sglang-probe explain {one.places[0]})"

    def _is_followed(self, run: Run) -> bool:
        """Say whether this is the run that is followed: its id may change as other hosts join it, and its number as
        earlier parts of a log are found."""
        if self.followed is None:
            return False
        before = self.followed.run
        if before.source == "log":
            return run.source == "log" and run.local_started == before.local_started
        known = {_identity(process) for process in before.processes}
        return any(_identity(process) in known for process in run.processes)


def is_over(run: Run, silent_s: float) -> bool:
    """Say whether a run will not become another: its processes are gone, or, where that cannot be known, silent."""
    alive = [process.alive for process in run.processes]
    if any(alive):
        return False
    if run.outcome in {"failed", "died"} or (alive and all(one is False for one in alive)):
        return True
    return silent_s > SILENCE_S


def key_of(run: Run) -> tuple[str, int]:
    """Return what names a run."""
    return run.run_id, run.launch


def _worth(one: Found) -> tuple[bool, bool, str]:
    """Order runs that go on: one that starts before a server that is up, one with ranks, and the one begun last."""
    return one.run.outcome != "ready", bool(ranks_of(one.run)), one.run.started or one.run.local_started or ""


def _lives(process: Process) -> bool:
    return bool(process.alive)


def _identity(process: Process) -> tuple[str | None, int | None, int | None]:
    return process.host, process.pid, process.start_ticks
