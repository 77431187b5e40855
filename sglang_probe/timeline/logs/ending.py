"""How each rank's text ends: which of its steps are closed, and what became of the one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.budget import AFTER_BUDGET
from sglang_probe.timeline.logs.outcome import Verdict
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.trouble import BUDGET, Trouble, troubles_of
from sglang_probe.timeline.model import Failure, State


class Ending(NamedTuple):
    """What became of a rank."""

    state: State
    """Of its root, and of every step that has no end."""
    failure: Failure | None
    failed_phase: str | None
    budget: Fact | None
    """The line by which its budget is known to have been computed, or to have been refused."""
    budget_state: State | None


def ending_of(seat: Seat, verdict: Verdict, troubles: Sequence[Trouble], seats: int) -> Ending:
    """Return how a rank ended. An error without a rank in a log of several is nobody's: their steps were interrupted.

    `troubles` are the errors of the whole log, `seats` the number of its ranks.
    """
    own = _own_trouble(seat, seats, troubles)
    budget, state = _budget(seat, own, verdict, troubles)
    if verdict.outcome == "ready":
        return Ending("ok", None, None, budget, state)
    if verdict.outcome == "failed" and own is not None and _served_by_then(seat, own):
        return Ending("ok", None, None, budget, state)
    if verdict.outcome == "failed" and own is not None:
        return Ending("error", own.failure, verdict.failed_phase, budget, state)
    if verdict.outcome in {"failed", "died"}:
        refused = state == "error"
        return Ending("error" if refused else "interrupted", None, BUDGET if refused else None, budget, state)
    return Ending("open", None, None, budget, state)


def _served_by_then(seat: Seat, own: Trouble) -> bool:
    """Say whether a rank had come to its last line of the start before its error: then its init was over."""
    kinds = [fact.kind for fact in seat.facts[: seat.facts.index(own.fact)]] if own.fact in seat.facts else []
    return "capacity" in kinds


def _own_trouble(seat: Seat, seats: int, troubles: Sequence[Trouble]) -> Trouble | None:
    """Return the first error that a rank printed itself; the only rank of a log printed all of them."""
    own: Sequence[Trouble] = troubles_of(seat.facts)
    if not own and seats == 1 and seat.label is not None and not seat.ranks:
        own = troubles
    return own[0] if own else None


def _budget(
    seat: Seat, own: Trouble | None, verdict: Verdict, troubles: Sequence[Trouble]
) -> tuple[Fact | None, State | None]:
    """Return the line that shows that a rank came to its budget, and how that ended."""
    after = next((fact for fact in seat.facts if fact.kind in AFTER_BUDGET), None)
    if own is not None and own.is_budget:
        return own.fact, "error"
    if after is not None:
        cap = after.count("profiled") if after.kind == "kv_cap" else None
        return after, "error" if cap is not None and cap <= 0 else "ok"
    if verdict.failed_phase != BUDGET:
        return None, None
    loose = next((one.fact for one in troubles if one.is_budget and one.label is None), None)
    if loose is None:
        return None, None
    return loose, "error" if seat.first("weights_end") is not None or seat.label is None else None
