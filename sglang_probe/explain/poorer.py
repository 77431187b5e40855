"""Ranks of a log that have less than their peers: a log lists no processes, but ranks of one stage need the same.

What a rank lacks against the poorest of those that are alike is what something else holds there. Given back, the budget
says whether that was the cause.
Worked example (TP 8): 24.00 GiB left on TP3 and 36.00 on each other: 12.00 more would make -7.28 GiB of budget +4.72.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sglang_probe.explain.effects import BALANCED, Effect, effect_of
from sglang_probe.explain.others import Held
from sglang_probe.explain.subject import Seat, Subject, label
from sglang_probe.figures import gib
from sglang_probe.timeline.model import Process

_STAGE: Final = re.compile(r"\bPP(\d+)")
_TENSOR: Final = re.compile(r"\bTP(\d+)")


def stage_of(process: Process) -> str | None:
    """Return the pipeline stage of a rank of a log; None where its label names none."""
    found = _STAGE.search(process.label or "")
    return None if found is None else found[1]


def tensor_of(process: Process) -> int:
    """Return the tensor rank of a rank of a log; 0 where its label names none."""
    found = _TENSOR.search(process.label or "")
    return 0 if found is None else int(found[1])


def poorer_ranks(subject: Subject) -> dict[str, Held]:
    """Return what the poor ranks of a log lack against those of their stage that are alike: label -> bytes."""
    if not subject.is_log:
        return {}
    stages: dict[str | None, list[Seat]] = {}
    for seat in subject.seats:
        if seat.budget.available_local_bytes is not None:
            stages.setdefault(stage_of(seat.process), []).append(seat)
    found: dict[str, Held] = {}
    for seats in stages.values():
        free = {seat.label: seat.budget.available_local_bytes or 0 for seat in seats}
        enough = BALANCED * max(free.values())
        peers = [seat for seat in seats if free[seat.label] >= enough]
        for seat in seats:
            if free[seat.label] < enough:
                lacks = min(free[one.label] for one in peers) - free[seat.label]
                found[seat.label] = Held(_before(seat, peers), lacks, lacks)
    return found


def _before(seat: Seat, peers: Iterable[Seat]) -> int:
    """Return what it lacked before the weights already; 0 where that is not printed."""
    own = seat.budget.pre_load_local_bytes
    theirs = [one.budget.pre_load_local_bytes for one in peers if one.budget.pre_load_local_bytes is not None]
    return 0 if own is None or not theirs else max(min(theirs) - own, 0)


def effect_of_poorer(subject: Subject) -> Effect | None:
    """Return what the poor ranks did to a budget that left nothing; None where no rank is poorer."""
    poorer = poorer_ranks(subject) if subject.budget_failed else {}
    return effect_of(subject, poorer, poorer) if poorer else None


def poorer_in_short(subject: Subject) -> str | None:
    """Return the cause in a clause, where a poor rank is one: with as much as its peers the server had started."""
    effect = effect_of_poorer(subject)
    if effect is None or effect.severity != "error":
        return None
    who, held = max(poorer_ranks(subject).items(), key=lambda pair: pair[1].available)
    return f"{who} has {gib(held.available)} GiB less than its peers"


def took_more(process: Process, other: Process) -> str:
    """Say what it means that a step took more on one rank of a log than on another."""
    if stage_of(process) != stage_of(other):
        return "pipeline stages need not be alike."
    return (
        "ranks of one stage load alike, so something else took it meanwhile: a tenant that came, which a log does not"
        " list, or a cache of the driver."
    )


def named(subject: Subject, who: str) -> Process:
    """Return the rank of a label; nobody known where there is none."""
    return next((process for process in subject.ranks if label(process) == who), Process())
