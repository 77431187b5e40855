"""What runs, ranks and models are called where each needs one name of its own: a label of a metric, a track of a trace.

Names come from outside: they are made printable and cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sglang_probe.figures import UNKNOWN
from sglang_probe.report.outcome import process_name
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Process, Run, Step, Worker

LONGEST: Final = 200
"""Characters of a name; a longer one ends in `...`."""


def clipped(value: object, longest: int = LONGEST) -> str:
    """Return `value` as printable text on one line of so many characters at most."""
    text = value if isinstance(value, str) else str(value)
    shown = printable(text[: longest + 1])  # escapes only lengthen it, so what lies behind cannot come into view
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run, no two alike: its id, and which launch of it where it is not the first."""
    return _told_apart(f"{clipped(run.run_id)}{f' launch {run.launch + 1}' if run.launch else ''}" for run in runs)


def rank_names(processes: Iterable[Process]) -> list[str]:
    """Return a name for each process of a run, no two alike: a rank's label, or what else it is."""
    return _told_apart(clipped(process_name(process)) for process in processes)


def worker_name(one: Step | Worker) -> str:
    """Return `target`, `draft` or `draft 1`; nothing for what belongs to no model."""
    name = clipped(one.worker or "")
    return name if one.draft_index is None else f"{name} {one.draft_index}"


def _told_apart(names: Iterable[str]) -> list[str]:
    """Return the names, with a number behind each that was there before."""
    found: dict[str, None] = {}
    for name in names:
        own, count = name or UNKNOWN, 1
        while own in found:
            count += 1
            own = f"{name or UNKNOWN} ({count})"
        found[own] = None
    return list(found)
