"""What the budget would have been if something had not been in the way: the test of every cause.

Memory that was gone before the weights lowers pre-load and available memory alike, so its return of c bytes raises
rest = available - pre-load x (1 - f) by c x f. Memory taken after that raises it by c.
Worked example: a tenant of 30 GiB at f = 0.85 costs the budget 25.5 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sglang_probe.explain.formula import Terms, terms_of
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.timeline.arithmetic import token_bytes


class Outcome(NamedTuple):
    """The tightest rank's budget under other circumstances."""

    rest_bytes: int
    gain_bytes: int
    """Against what it was."""
    gain_tokens: int | None
    terms: Terms

    @property
    def starts(self) -> bool:
        """Say whether something is left where by the same terms nothing was."""
        return self.rest_bytes - self.gain_bytes <= 0 < self.rest_bytes

    @property
    def proves_nothing(self) -> bool:
        """Say whether the terms leave something as they are: then it is not they that made a budget negative."""
        return self.rest_bytes - self.gain_bytes > 0


def given_back(subject: Subject, by_rank: Mapping[str, int]) -> Outcome | None:
    """Return the budget if memory that was gone before the weights had been free: label -> bytes.

    The minimum over the ranks is taken anew, where every rank's own figures are known; else the tightest rank's figure
    is raised by what it gets. None where no budget is known.
    """
    seat = subject.tightest
    terms = None if seat is None else terms_of(seat.budget)
    if seat is None or terms is None:
        return None
    available, pre_load = _minimum(subject, by_rank, "available"), _minimum(subject, by_rank, "pre_load")
    gain = by_rank.get(seat.label, 0)
    better = terms._replace(
        available=terms.available + gain if available is None else max(available, terms.available),
        pre_load=terms.pre_load + gain if pre_load is None else max(pre_load, terms.pre_load),
    )
    return compared(seat, terms, better)


def compared(seat: Seat, terms: Terms, better: Terms) -> Outcome:
    """Return what other terms would have given this rank."""
    token = token_bytes(seat.worker)
    gain = better.rest_bytes - terms.rest_bytes
    tokens = None if token is None else max(better.tokens(token), 0) - max(terms.tokens(token), 0)
    return Outcome(better.rest_bytes, gain, tokens, better)


def _minimum(subject: Subject, by_rank: Mapping[str, int], which: str) -> int | None:
    """Return the least of a figure over the ranks with their memory back; None where a rank's own is unknown."""
    own: list[tuple[str, int | None]] = [
        (seat.label, getattr(seat.budget, f"{which}_local_bytes")) for seat in subject.seats
    ]
    known = [size + by_rank.get(who, 0) for who, size in own if size is not None]
    return min(known) if known and len(known) == len(subject.ranks) else None
