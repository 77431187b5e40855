"""What a run, its processes and their steps are, asked by the findings and the reports alike."""

from __future__ import annotations

from sglang_probe.figures import exception_type
from sglang_probe.timeline.model import Failure, Process, Run, Step


def ranks_of(run: Run) -> tuple[Process, ...]:
    """Return the processes that are ranks."""
    return tuple(process for process in run.processes if process.label is not None)


def is_called(process: Process, name: str) -> bool:
    """Say whether a rank has this label, with or without the host that is before it where labels are not unique."""
    return process.label is not None and name in {process.label, process.label.rpartition(":")[2]}


def world_size(run: Run) -> int:
    """Return how many ranks a run has, seen or not."""
    return len(ranks_of(run)) + len(run.missing)


def is_cpu(process: Process) -> bool:
    """Say whether a rank's memory is the host's."""
    return process.device is not None and process.device.kind == "cpu"


def last_ledger(process: Process) -> Step | None:
    """Return the last outermost step that has a ledger."""
    return next((step for step in reversed(process.steps) if step.depth == 0 and step.ledger is not None), None)


def first_step(process: Process, phase: str) -> Step | None:
    """Return the first step of a phase that is no draft's."""
    return next((step for step in process.steps if step.phase == phase and step.worker != "draft"), None)


def ended_ns(step: Step) -> int | None:
    """Return when a step ended, on the clock of its `mono_ns`; the begin where it is not known how long it took."""
    return None if step.mono_ns is None else step.mono_ns + round((step.duration_s or 0) * 1e9)


def first_error(failure: Failure) -> str:
    """Return the type of an exception and the first line of what it says."""
    first = next(iter((failure.message or "").splitlines()), "without a message")
    return f"{exception_type(failure.type)}: {first}"
