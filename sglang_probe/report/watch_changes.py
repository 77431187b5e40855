"""What happened in a start since the last look: begins and ends of phases, over the ranks that did the same.

Pure: from a run and how far each rank had come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from sglang_probe.figures import gib, seconds
from sglang_probe.report.watch import Survey
from sglang_probe.report.watch_places import ROOT, Mark
from sglang_probe.report.watch_text import clock as passed
from sglang_probe.report.watch_text import who

DEEPEST: Final = 1
"""Steps nested deeper than the phases of `scheduler.init` are left to the screen."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One begin or end, of the ranks that were seen to come to it together."""

    labels: tuple[str, ...]
    kind: Literal["began", "ended", "failed"]
    phase: str
    what: str
    at_s: float | None
    """When the last of them came to it: seconds since the run began."""
    took_s: float | None = None
    """Of an end, the longest."""
    least_took_s: float | None = None
    cost_bytes: int | None = None
    """The most of them."""
    least_cost_bytes: int | None = None
    free_bytes: int | None = None
    """The least."""
    precision_bytes: int | None = None


def changes(survey: Survey, come: Mapping[str, int]) -> tuple[tuple[Change, ...], dict[str, int]]:
    """Return what is new since each rank had come so far (`come`: label -> begins and ends), and how far it is now."""
    now: dict[str, int] = {}
    groups: dict[tuple[str, int, bool, bool], list[tuple[str, Mark]]] = {}
    for label, track in survey.tracks.items():
        marks = [mark for mark in track.marks if mark.step.depth <= DEEPEST]
        now[label] = len(marks)
        fresh = marks[come.get(label, 0) :]
        over = {mark.key[:2] for mark in fresh if mark.key[2]}  # of what began and ended since, the end says enough
        for mark in fresh:
            if mark.key[2] or mark.key[:2] not in over:
                groups.setdefault((*mark.key, mark.step.state == "error"), []).append((label, mark))
    found = [_change(met) for met in groups.values()]
    return tuple(sorted(found, key=lambda one: (one.at_s is None, one.at_s or 0.0))), now


def _change(met: list[tuple[str, Mark]]) -> Change:
    first = met[0][1]
    steps = [mark.step for _, mark in met]
    ended = first.key[2]
    free = _known(step.free_bytes if ended else step.free_before_bytes for step in steps)
    cost = _known(step.cost_bytes for step in steps) if ended else []
    took = [step.duration_s for step in steps if step.duration_s is not None] if ended else []
    return Change(
        labels=tuple(label for label, _ in met),
        kind="began" if not ended else "failed" if first.step.state == "error" else "ended",
        phase=first.step.phase,
        what=first.key[0],
        at_s=max((mark.at_s for _, mark in met if mark.at_s is not None), default=None),
        took_s=max(took, default=None),
        least_took_s=min(took, default=None),
        cost_bytes=max(cost, default=None),
        least_cost_bytes=min(cost, default=None),
        free_bytes=min(free, default=None),
        precision_bytes=first.step.precision_bytes,
    )


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def change_text(change: Change) -> str:
    """Return one change as a line: `TP0-TP7 (8): weights.load ended: took 33.5 s, 72.302 GiB; 21.697 GiB free`."""
    up = "is ready" if len(change.labels) == 1 else "are ready"
    kind = up if (change.phase, change.kind) == (ROOT, "ended") else None
    said = kind or f"{change.what} {change.kind}"
    figures = []
    if change.took_s is not None:
        figures.append(f"took {_between(seconds(change.least_took_s), seconds(change.took_s))} s")
    if change.cost_bytes is not None:
        least, most = (gib(one, change.precision_bytes) for one in (change.least_cost_bytes, change.cost_bytes))
        figures.append(f"cost {_between(least, most)} GiB")
    if change.free_bytes is not None:
        figures.append(f"{gib(change.free_bytes, change.precision_bytes)} GiB free")
    return f"{who(change.labels)}: {said}{'; ' if figures else ''}{', '.join(figures)}"


def stamped(at_s: float | None, text: str) -> str:
    """Return a line with the time that has passed since the run began: `+12.3 s  TP0: weights.load began`."""
    return f"{'+' + passed(at_s) if at_s is not None else '-':>9}  {text}"


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
