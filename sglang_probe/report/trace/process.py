"""One process of a run in a trace: its name, the slices of its steps, its errors, its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sglang_probe.explain.subject import errors_by_id
from sglang_probe.figures import UNKNOWN, exception_type, gib
from sglang_probe.report.names import clipped, worker_name
from sglang_probe.report.series import NS, RunClock, moments
from sglang_probe.report.steps import step_name
from sglang_probe.report.trace.events import Event, Track, counted, instant, named, sliced
from sglang_probe.report.trace.seats import Numbers
from sglang_probe.report.trace.slices import Slice, slices
from sglang_probe.timeline.model import Failure, Process
from sglang_probe.timeline.processes import first_error

LONGEST_TEXT = 2000
"""Characters of a message."""
MEMORY = "memory (bytes)"
FREE = "free (bytes)"


class Drawn(NamedTuple):
    """A process as it is drawn, and where arrows to and from it end."""

    events: list[Event]
    track: Track
    begin_ns: int | None
    """When its first slice began; None where it has none."""
    end_ns: int


class Place(NamedTuple):
    """What a process is called in a trace, and where it stands among the others."""

    name: str
    order: int


def draw(
    process: Process, place: Place, clock: RunClock, last_ns: int, numbers: Numbers, shown: tuple[str, ...]
) -> Drawn:
    """Return the events of a process; `shown` are the categories of its memory that its run has anything of."""
    track = _track(process, numbers)
    events = list(names(track, f"{place.name}{_where(process)}", _labels(process), place.order))
    placed = slices(process, clock, last_ns)
    lanes = {0: track}
    for one in placed:
        if one.lane not in lanes:
            lanes[one.lane] = Track(track.pid, numbers.fresh())
            events.append(named(lanes[one.lane], "thread_name", f"steps at the same time, {one.lane + 1}"))
    events += [_slice(one, lanes[one.lane]) for one in placed]
    events += _errors(process, placed, lanes)
    events += _memory(process, track, clock, shown)
    if placed:
        return Drawn(events, track, placed[0].begin_ns, placed[0].end_ns)
    return Drawn(events, track, None, 0)


def names(track: Track, name: str, labels: str, order: int) -> Iterator[Event]:
    """Yield what a process and its first track are called."""
    yield named(track, "process_name", name)
    if labels:
        yield named(track, "process_labels", labels)
    yield named(track, "process_sort_index", order)
    yield named(track, "thread_name", "steps")


def _track(process: Process, numbers: Numbers) -> Track:
    pid = numbers.of(process)
    return Track(pid, pid)


def _where(process: Process) -> str:
    pid = None if process.pid is None else f"pid {process.pid}"
    known = [clipped(one) for one in (process.host, pid) if one is not None]
    return f" ({', '.join(known)})" if known else ""


def _labels(process: Process) -> str:
    device = process.device
    if device is None:
        return ""
    index = "" if device.index is None else f" {device.index}"
    return "CPU" if device.kind == "cpu" else f"GPU{index} {clipped(device.name or '')}".strip()


def _slice(one: Slice, track: Track) -> Event:
    args = {key: value for key, value in _args(one).items() if value not in {None, ""}}
    return sliced(track, clipped(step_name(one.step)), clipped(one.step.phase), one.begin_ns, one.end_ns, args)


def _args(one: Slice) -> dict[str, Any]:
    step = one.step
    cost = None if step.cost_bytes is None else f"{gib(step.cost_bytes, step.precision_bytes)} GiB"
    own = None if step.self_delta_bytes is None else -step.self_delta_bytes
    return {
        "state": step.state,
        "why": clipped(step.state_reason or "", LONGEST_TEXT),
        "phase": clipped(step.phase),
        "detail": clipped(step.detail or ""),
        "worker": worker_name(step),
        "duration_s": step.duration_s,
        "cost": cost,
        "cost_bytes": step.cost_bytes,
        "self_cost_bytes": own,
        "free_before_bytes": step.free_before_bytes,
        "free_after_bytes": step.free_bytes,
        "precision_bytes": step.precision_bytes,
        "unknown": clipped(step.null_reason or "", LONGEST_TEXT),
        "error": _said(step.failure),
        "drawn": one.drawn,
    }


def _said(failure: Failure | None) -> str:
    """Return an exception in its own words; only its type on the steps that it passed after the innermost one."""
    if failure is None:
        return ""
    kind = clipped(exception_type(failure.type))
    return kind if failure.message is None else f"{kind}: {clipped(failure.message, LONGEST_TEXT)}"


def _errors(process: Process, placed: list[Slice], lanes: dict[int, Track]) -> Iterator[Event]:
    """Yield each exception once, when the innermost step that it passed ended."""
    by_step = {one.step.id: one for one in placed}
    for step in errors_by_id(process):
        if step.id in by_step:
            one = by_step[step.id]
            failure = step.failure or Failure()
            raised_in = clipped(failure.raised_in or UNKNOWN)
            args = {"error": _said(failure), "phase": clipped(step.phase), "raised_in": raised_in}
            yield instant(lanes[one.lane], clipped(first_error(failure)), "error", one.end_ns, args)


def _memory(process: Process, track: Track, clock: RunClock, shown: tuple[str, ...]) -> Iterator[Event]:
    """Yield what each category held at the end of each step, where it changed; without a ledger what was free."""
    before: dict[str, int] = {}
    read = moments(process, clock)
    for moment in read:
        held = {key: value for key in shown if (value := getattr(moment.ledger, key)) is not None}
        if held and held != before:
            before = held
            yield counted(track, MEMORY, max(round(moment.at_s * NS), 0), held)
    if not read:
        yield from _free(process, track, clock)


def _free(process: Process, track: Track, clock: RunClock) -> Iterator[Event]:
    for step in process.steps:
        times = (clock.begin_s(process, step), clock.end_s(process, step))
        for time, free in zip(times, (step.free_before_bytes, step.free_bytes), strict=True):
            if time is not None and free is not None:
                yield counted(track, FREE, max(round(time * NS), 0), {"free": free})
