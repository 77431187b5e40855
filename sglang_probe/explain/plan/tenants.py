"""Each rank's own memory, and what others held of it: what comes back when they are gone.

SGLang's pre-load and available memory are minima over all ranks, so each rank's own figures are needed: of its budget,
or of the steps before it where the rank was ended before it had one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sglang_probe.explain.formula import Terms
from sglang_probe.explain.subject import Subject, label
from sglang_probe.timeline.arithmetic import SAME_BYTES
from sglang_probe.timeline.model import Process

UNSEEN: Final = "(unseen)"
"""Stands for ranks that wrote nothing, where the minimum must be one of theirs."""


class Own(NamedTuple):
    """What was free on one rank itself, in bytes."""

    pre_load: int
    available: int
    is_known: bool = True
    """False: one of them is not known, and SGLang's minimum stands for it, which is the least that it can be."""


class Held(NamedTuple):
    """What others hold on a rank's device."""

    pre_load: int
    """Of the pre-load memory."""
    available: int


def held_by_others(process: Process) -> Held:
    """Return what others hold on a rank's device; one that is gone holds nothing.

    A process that came after the pre-load memory was read would count in `available` alone; when it came is not told
    apart here yet, so what the last list of the device says counts in both.
    """
    now = sum(max(one.bytes or 0, 0) for one in process.neighbours if one.kind == "foreign" and not one.gone)
    return Held(now, now)


def tenants_of(subject: Subject) -> dict[str, Held]:
    """Return what others hold on the device of each rank, with a budget or not, where it is anything."""
    held = {label(process): held_by_others(process) for process in _ranks(subject)}
    return {rank: found for rank, found in held.items() if any(found)}


def locals_of(subject: Subject, terms: Terms) -> dict[str, Own]:
    """Return each rank's own memory."""
    found = {label(process): _own(subject, process, terms) for process in _ranks(subject)}
    for index, least in enumerate((terms.pre_load, terms.available)):
        if min((own[index] for own in found.values()), default=least) > least + SAME_BYTES:
            found[UNSEEN] = Own(terms.pre_load, terms.available, is_known=False)
    return found


def unbalanced(owns: Mapping[str, Own], back: Mapping[str, int]) -> tuple[int, int] | None:
    """Return least and most pre-load memory of the ranks with memory given back, where they are too unequal to start.

    Source: SGLang's `init_torch_distributed` refuses where a rank has more than the least / 0.9.
    """
    pre = [own.pre_load + back.get(rank, 0) for rank, own in owns.items() if own.is_known]
    if len(pre) > 1 and min(pre) < max(pre) * 0.9:
        return min(pre), max(pre)
    return None


def _ranks(subject: Subject) -> Iterator[Process]:
    yield from subject.ranks
    yield from (seat.process for seat in subject.seats if seat.process.label is None)


def _own(subject: Subject, process: Process, terms: Terms) -> Own:
    seat = next((one for one in subject.seats if one.process is process), None)
    pre = None if seat is None else seat.budget.pre_load_local_bytes
    available = None if seat is None else seat.budget.available_local_bytes
    if pre is None and process.pre_load is not None:
        pre = process.pre_load.pre_load_bytes
    if available is None:
        available = _before_budget(process)
    known = pre is not None and available is not None
    if seat is not None and not known:
        known = seat.is_least  # a release that says only the minimum
    return Own(terms.pre_load if pre is None else pre, terms.available if available is None else available, known)


def _before_budget(process: Process) -> int | None:
    """Return what was free when the target's budget began to be computed."""
    begun = [step for step in process.steps if step.phase == "kv.profile" and step.worker != "draft"]
    return begun[0].free_before_bytes if begun else None
