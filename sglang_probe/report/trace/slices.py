"""The steps of a process as slices that nest, which is what a track of a trace has to hold.

Times are whole nanoseconds since the run began. Where the clocks of a step and of the step around it disagree, or a log
has no more than the second, the inner one is cut to fit, and its slice says so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.report.series import NS, RunClock, times_of
from sglang_probe.timeline.model import Process, Step

UNFINISHED: Final = {
    "open": "has not ended, as far as is known: drawn until the last time that is known",
    "died": "its process is gone, nobody knows since when: drawn until the last time that is known of the run",
    "interrupted": "has no end: drawn until the last time that is known of the run",
}
NO_DURATION: Final = "how long it took is not known: drawn until the last time that is known inside it"
VISIBLE_NS: Final = 1000
"""A slice that was cut by less is not worth a word."""


class Slice(NamedTuple):
    """A step as it is drawn."""

    step: Step
    begin_ns: int
    end_ns: int
    lane: int
    """0, or the number of a further track: outermost steps that ran at once, in threads, cannot share one."""
    drawn: str | None
    """Why it is not drawn as long as it took."""


class _Level:
    """A slice that may hold others, and until when it does already."""

    def __init__(self, one: Slice) -> None:
        self.slice = one
        self.free_from = one.begin_ns


def slices(process: Process, clock: RunClock, last_ns: int) -> list[Slice]:
    """Return the slices of a process, outer ones first; a step of which no time is known has none."""
    found: list[Slice] = []
    around: list[_Level] = []
    lanes: list[int] = []
    for position, step in enumerate(process.steps):
        begin = _ns(clock.begin_s(process, step))
        if begin is None:
            continue
        end, drawn = _end(process, position, clock, begin, last_ns)
        while around and around[-1].slice.step.depth >= step.depth:
            around.pop()
        if around:
            one = _inside(around[-1], step, begin, end, drawn)
        else:
            one = Slice(step, begin, end, _lane(lanes, begin, end), drawn)
        found.append(one)
        around.append(_Level(one))
    return found


def _end(process: Process, position: int, clock: RunClock, begin: int, last_ns: int) -> tuple[int, str | None]:
    step = process.steps[position]
    end = _ns(clock.end_s(process, step))
    if end is not None:
        return max(begin, end), None
    if step.state in UNFINISHED:
        return max(begin, last_ns), UNFINISHED[step.state]
    return max([begin, *(round(time * NS) for time in times_of(process, position, clock))]), NO_DURATION


def _inside(outer: _Level, step: Step, begin: int, end: int, drawn: str | None) -> Slice:
    """Return a slice that lies inside the outer one and behind what is in there already."""
    most = outer.slice.end_ns
    first = min(max(begin, outer.free_from), most)
    last = min(max(end, first), most)
    outer.free_from = last
    if drawn is None and max(abs(first - begin), abs(last - end)) > VISIBLE_NS:
        drawn = f"cut to fit: by its own clock from {begin / NS:.3f} s to {end / NS:.3f} s"
    return Slice(step, first, last, outer.slice.lane, drawn)


def _lane(lanes: list[int], begin: int, end: int) -> int:
    """Return the first track that nothing else is on by then; `lanes` holds until when each is taken."""
    for lane, taken_until in enumerate(lanes):
        if taken_until <= begin:
            lanes[lane] = end
            return lane
    lanes.append(end)
    return len(lanes) - 1


def _ns(time: float | None) -> int | None:
    return None if time is None else round(time * NS)
