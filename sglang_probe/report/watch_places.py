"""Where a rank is in its start, so that ranks can be compared: the begins and ends of its steps, in their order."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Literal, NamedTuple

from sglang_probe.explain.subject import labels
from sglang_probe.report.series import RunClock
from sglang_probe.report.steps import step_name
from sglang_probe.timeline.model import Process, Run, Step

PlaceState = Literal["before", "in", "after", "ready", "error", "ended"]
ROOT: Final = "scheduler.init"
ENDED: Final = frozenset({"ok", "error"})
_GROUP: Final = re.compile(r":[0-9]+\b")
"""The number of a group (`tp:0`): ranks of other groups do the same in theirs."""


class Place(NamedTuple):
    """A point in a start that every rank passes: the same for all ranks that are there."""

    state: PlaceState
    now: str
    phase: str | None
    key: tuple[str, int, bool] | None
    """Step, the how-manieth of that name, and whether it has ended; None before the first."""


class Mark(NamedTuple):
    """A begin or an end of a step."""

    key: tuple[str, int, bool]
    at_s: float | None
    """Seconds since the run began."""
    step: Step


class Track(NamedTuple):
    """A rank's way through its start."""

    place: Place
    at_s: float | None
    """When it came to its place."""
    marks: tuple[Mark, ...]
    positions: dict[tuple[str, int, bool], int]
    free_bytes: int | None
    """What its device had free when that was last read."""
    precision_bytes: int | None

    def passed(self, place: Place) -> tuple[float | None, float | None] | None:
        """Return when this rank came to a place and when it went on; None where it did not come, or is there."""
        position = -1 if place.key is None else self.positions.get(place.key)
        if position is None or position + 1 >= len(self.marks):
            return None
        return self.marks[position].at_s if position >= 0 else None, self.marks[position + 1].at_s


def process_names(run: Run) -> list[tuple[Process, str]]:
    """Return how each process of a run is called, its label or role: with its pid where two are called alike, as the
    ranks of two replicas on one host."""
    plain = list(labels(run.processes))
    alike = Counter(plain)
    named = zip(run.processes, plain, strict=True)
    return [
        (process, name if alike[name] == 1 else f"{name} (pid {place if process.pid is None else process.pid})")
        for place, (process, name) in enumerate(named)
    ]


def track_of(process: Process, clock: RunClock) -> Track:
    """Return the way of a rank."""
    marks, around = _walk(process, clock)
    place = _place(process, marks, around)
    read = next((mark for mark in reversed(marks) if _free(mark) is not None), None)
    return Track(
        place=place,
        at_s=_last_time(marks) if marks else clock.at_s(process, process.first_ts),
        marks=tuple(marks),
        positions={mark.key: position for position, mark in enumerate(marks)},
        free_bytes=None if read is None else _free(read),
        precision_bytes=None if read is None else read.step.precision_bytes,
    )


def _last_time(marks: list[Mark]) -> float | None:
    """Return the last time that is known: a log does not tell when each step ended."""
    return next((mark.at_s for mark in reversed(marks) if mark.at_s is not None), None)


def _walk(process: Process, clock: RunClock) -> tuple[list[Mark], list[Step]]:
    """Return begins and ends in the order in which they came, and the steps open at the end, outermost first."""
    seen: Counter[str] = Counter()
    marks: list[Mark] = []
    around: list[tuple[Step, str, int]] = []

    def close(step: Step, name: str, nth: int) -> None:
        if step.state in ENDED:
            marks.append(Mark((name, nth, True), clock.end_s(process, step), step))

    for step in process.steps:
        while around and around[-1][0].depth >= step.depth:
            close(*around.pop())
        name = _named(step)
        marks.append(Mark((name, seen[name], False), clock.begin_s(process, step), step))
        around.append((step, name, seen[name]))
        seen[name] += 1
    for one in reversed(around):
        close(*one)
    return _in_order(marks), [step for step, _, _ in around if step.state not in ENDED]


def _in_order(marks: list[Mark]) -> list[Mark]:
    """Return marks whose times do not go back: by few stamps a step may end after the next began."""
    latest: float | None = None
    found = []
    for mark in marks:
        if mark.at_s is not None:
            latest = mark.at_s if latest is None else max(latest, mark.at_s)
        found.append(mark if mark.at_s is None else mark._replace(at_s=latest))
    return found


def _free(mark: Mark) -> int | None:
    return mark.step.free_bytes if mark.key[2] else mark.step.free_before_bytes


def _place(process: Process, marks: list[Mark], around: list[Step]) -> Place:
    if not marks:
        return Place("before", "before its first step", None, None)
    last = marks[-1]
    failed = [step for step in process.steps if step.state == "error"]
    if failed:
        innermost = max(failed, key=lambda step: step.depth)
        return Place("error", f"failed in {_named(innermost)}", innermost.phase, last.key)
    if not around:
        ready = last.step.phase == ROOT
        return Place("ready" if ready else "after", "ready" if ready else f"after {last.key[0]}", None, last.key)
    step = around[-1]
    after = f", after {last.key[0]}" if last.key[2] else ""
    if step.state in {"died", "interrupted"}:
        return Place("ended", f"{step.state} in {_named(step)}{after}", step.phase, last.key)
    return Place("after" if after else "in", f"{_named(step)}{after}", step.phase, last.key)


def _named(step: Step) -> str:
    return _GROUP.sub("", step_name(step))
