"""The out-of-memory error that ended a run: where it struck, by how much memory was short, and what held the rest."""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.explain.oom_message import OutOfMemory, parse
from sglang_probe.explain.subject import Subject, errors_by_id, label
from sglang_probe.timeline.arithmetic import floor_binds, is_capped
from sglang_probe.timeline.model import Process, Step, Worker

FLOOR_DECIDES: Final = "SGLang's floor on the slack decides, not the fraction"

UNKNOWN_PHASE: Final = ""
"""Of an error in a log that does not say where it struck."""


class Shortage(NamedTuple):
    """The first error of a run, where it is one of the device's memory."""

    process: Process
    step: Step
    said: OutOfMemory

    @property
    def label(self) -> str:
        """Return the rank that it struck."""
        return label(self.process)

    @property
    def ranks(self) -> tuple[str, ...]:
        """Return the same for a finding; empty where a log does not name it."""
        return () if self.process.label is None else (self.label,)

    @property
    def pools_made(self) -> bool:
        """Say whether the rank had made a KV pool."""
        return any(step.phase == "kv.pool" and step.state == "ok" for step in self.process.steps)

    @property
    def target(self) -> Worker | None:
        """Return the rank's target."""
        return next((worker for worker in self.process.workers if worker.worker == "target"), None)

    @property
    def is_capped(self) -> bool:
        """Say whether --max-total-tokens limits the KV cache that it made."""
        return self.pools_made and self.target is not None and is_capped(self.target)

    @property
    def wanted_bytes(self) -> int:
        """Return what was asked for; 0 where the message does not say."""
        return self.said.wanted or 0

    @property
    def free_bytes(self) -> int | None:
        """Return what was free then: as the message says, else as read when the step had failed."""
        return self.step.free_bytes if self.said.free is None else self.said.free

    @property
    def short_bytes(self) -> int | None:
        """Return by how much it was short; None where that is not known, or what was free would have been enough."""
        if self.said.wanted is None or self.free_bytes is None or self.was_enough:
            return None
        return self.said.wanted - self.free_bytes

    @property
    def was_enough(self) -> bool:
        """Say whether more was free than was wanted: it lay in pieces, a limit held, or it is of another moment."""
        return self.said.wanted is not None and self.free_bytes is not None and self.said.wanted <= self.free_bytes


def shortage_of(subject: Subject) -> Shortage | None:
    """Return the out-of-memory error that a run failed with; None where its first error is another."""
    run = subject.run
    if not subject.failed or run.failure is None or subject.budget_failed:
        return None
    said = parse(f"{run.failure.type or ''}: {run.failure.message or ''}")
    if said is None:
        return None
    found = [
        (process, step)
        for process in run.processes
        for step in errors_by_id(process)
        if run.failure.id is None or (step.failure is not None and step.failure.id == run.failure.id)
    ]
    blamed = [pair for pair in found if pair[0].label == run.failed_label] or found
    if not blamed and subject.is_log:
        phase = run.failed_phase or UNKNOWN_PHASE
        blamed = [(_somebody(subject), Step(id="", parent=None, phase=phase, state="error", failure=run.failure))]
    return Shortage(*blamed[0], said) if blamed else None


def _somebody(subject: Subject) -> Process:
    """Return the rank that an error of a log is of; nobody known, where the text names none."""
    named = [process for process in subject.ranks if process.label == subject.run.failed_label]
    return named[0] if named else subject.ranks[0] if len(subject.ranks) == 1 else Process()


def why_lowering_frees_nothing(shortage: Shortage) -> str | None:
    """Return why a lower fraction would not have left more memory where it ran out; None where it would have."""
    if shortage.step.phase == UNKNOWN_PHASE:
        return None  # whether the pools had been made is not in the text
    if not shortage.pools_made:
        return "no KV pool had been made"
    target = shortage.target
    if shortage.is_capped:
        return "--max-total-tokens limits the KV cache, not memory"
    if target is not None and target.budget is not None and floor_binds(target.budget):
        return FLOOR_DECIDES
    return None
