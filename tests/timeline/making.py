"""From built processes to their timeline, through real files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence

from sglang_probe.collect import read
from sglang_probe.timeline import ProcessId, build
from sglang_probe.timeline.model import Process, Run, Step, Timeline
from tests.collect.building import Writer

Alive = Callable[[ProcessId], bool | None]


def unknowable(_: ProcessId) -> bool | None:
    """Answer for a directory copied from elsewhere."""
    return None


def gone(_: ProcessId) -> bool | None:
    """Answer for a server that has ended."""
    return False


def gone_but(*pids: int, others: bool | None = True) -> Alive:
    """Answer that these processes are gone."""
    return lambda process: False if process.pid in pids else others


def timeline_of(writers: Iterable[Writer], alive: Alive = unknowable) -> Timeline:
    """Return the timeline of what the processes wrote."""
    lines = b"".join(line for writer in writers for line in writer.lines())
    return build(read(["-"], io.BytesIO(lines)), alive=alive)


def run_of(writers: Iterable[Writer], alive: Alive = unknowable) -> Run:
    """Return the only run of what the processes wrote."""
    (run,) = timeline_of(writers, alive).runs
    return run


def ranks(run: Run) -> list[Process]:
    """Return the processes that hold a model."""
    return [process for process in run.processes if process.role == "scheduler"]


def step(process: Process, phase: str, detail: str | None = None) -> Step:
    """Return the first step of a phase."""
    return next(one for one in process.steps if one.phase == phase and detail in (None, one.detail))


def states(process: Process) -> dict[str, str]:
    """Return phase -> state; of steps of one phase the outermost counts."""
    return {one.phase: one.state for one in reversed(process.steps)}


def phases(steps: Sequence[Step]) -> list[tuple[int, str]]:
    """Return (depth, phase) of each step."""
    return [(one.depth, one.phase) for one in steps]
