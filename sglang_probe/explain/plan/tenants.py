"""Each rank's own memory, and what others held of it: what comes back when they are gone.

SGLang's pre-load and available memory are minima over all ranks, so each rank's own figures are needed: of its budget,
or of the steps before it where the rank was ended before it had one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sglang_probe.explain.effects import is_even
from sglang_probe.explain.formula import Terms
from sglang_probe.explain.others import Held, burden_of
from sglang_probe.explain.subject import Seat, Subject, label
from sglang_probe.timeline.arithmetic import SAME_BYTES
from sglang_probe.timeline.model import Process
from sglang_probe.timeline.processes import first_step

UNSEEN: Final = "(unseen)"
"""Stands for ranks that wrote nothing, where the minimum must be one of theirs."""


class Own(NamedTuple):
    """What was free on one rank itself, in bytes."""

    pre_load: int
    available: int
    is_known: bool = True
    """False: one of them is not known, and SGLang's minimum stands for it, which is the least that it can be."""


class Tenants(NamedTuple):
    """What others held on the device of each rank, in bytes."""

    available: dict[str, int]
    """Of its available memory; ranks beside nobody are not here."""
    pre_load: dict[str, int]
    """The same, of its pre-load memory."""
    later: int
    """By how much it has grown since on the tightest rank's device; negative: it shrank."""
    gone: bool
    """Whether one of them was gone at the end."""


def held_by_others(subject: Subject) -> dict[str, Held]:
    """Return what others held on the device of each rank, with a budget or not: at the pre-load memory, when the
    budget was computed, and at the end."""
    return burden_of(subject, lambda _, one: one.kind == "foreign")


def tenants_of(subject: Subject, tightest: str) -> Tenants:
    """Return what plans ask of it."""
    held = held_by_others(subject)
    return Tenants(
        available={rank: one.available for rank, one in held.items() if one.available or one.pre_load},
        pre_load={rank: one.pre_load for rank, one in held.items()},
        later=held[tightest].now - held[tightest].available if tightest in held else 0,
        gone=any(near.gone and near.kind == "foreign" for rank in subject.ranks for near in rank.neighbours),
    )


def locals_of(subject: Subject, terms: Terms) -> dict[str, Own]:
    """Return each rank's own memory."""
    seats = {id(seat.process): seat for seat in subject.seats}
    found = {label(process): _own(seats.get(id(process)), process, terms) for process in _ranks(subject)}
    for index, least in enumerate((terms.pre_load, terms.available)):
        if min((own[index] for own in found.values()), default=least) > least + SAME_BYTES:
            found[UNSEEN] = Own(terms.pre_load, terms.available, is_known=False)
    return found


def unbalanced(owns: Mapping[str, Own], back: Mapping[str, int]) -> tuple[int, int] | None:
    """Return least and most pre-load memory of the ranks with memory given back, where they are too unequal to start.

    Source: SGLang's `init_torch_distributed`.
    """
    pre = [own.pre_load + back.get(rank, 0) for rank, own in owns.items() if own.is_known]
    if len(pre) > 1 and not is_even(pre):
        return min(pre), max(pre)
    return None


def _ranks(subject: Subject) -> Iterator[Process]:
    yield from subject.ranks
    yield from (seat.process for seat in subject.seats if seat.process.label is None)


def _own(seat: Seat | None, process: Process, terms: Terms) -> Own:
    pre = None if seat is None else seat.budget.pre_load_local_bytes
    available = None if seat is None else seat.budget.available_local_bytes
    if pre is None and process.pre_load is not None:
        pre = process.pre_load.pre_load_bytes
    if available is None:
        profile = first_step(process, "kv.profile")  # what was free when the budget began to be computed
        available = None if profile is None else profile.free_before_bytes
    known = pre is not None and available is not None
    if seat is not None and not known:
        known = seat.is_least  # a release that says only the minimum
    return Own(terms.pre_load if pre is None else pre, terms.available if available is None else available, known)
