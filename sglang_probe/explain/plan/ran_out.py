"""A run that ran out of memory: what a plan of it has to free where it did."""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.subject import Subject

EARLY: Final = frozenset({"dist.init", "weights.load"})
"""Phases before the budget: no pool is there that could give way."""


class RanOut(NamedTuple):
    """The out-of-memory error that a run failed with."""

    phase: str
    short: int | None
    """Bytes; None: not known."""
    early: bool
    """Whether it was before the target's budget, so that only what is loaded before counts."""

    def lasts(self, freed: int | None) -> bool | None:
        """Say whether it would run out there again, with so many bytes freed; None: unknown."""
        if freed is None:
            return None
        return freed <= 0 if self.short is None else freed < self.short


def ran_out_of(subject: Subject) -> RanOut | None:
    """Return the out-of-memory error of a run; None where it failed with another, or not at all."""
    found = shortage_of(subject)
    if found is None:
        return None
    phase, worker = found.step.phase, found.step.worker
    return RanOut(subject.run.failed_phase or phase, found.short_bytes, phase in EARLY and worker != "draft")
