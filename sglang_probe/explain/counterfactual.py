"""What the budget would have been if something had not been in the way: the test of every cause.

    rest = available - pre-load x (1 - f)
Memory that was gone before the weights lowers pre-load and available memory alike, so its return of c bytes raises rest
by c x f. Memory taken after that raises it by c. SGLang takes the minimum over the ranks of a world: it is taken anew.
Worked example: a tenant of 30 GiB at f = 0.85 costs the budget 25.5 GiB if it was there before the weights, and 30 if
it came after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sglang_probe.explain.formula import Terms, terms_of
from sglang_probe.explain.others import Burden, Held
from sglang_probe.explain.subject import Seat, Subject, label
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Process
from sglang_probe.timeline.processes import first_step


class Outcome(NamedTuple):
    """The tightest rank's budget under other circumstances."""

    rest_bytes: int
    gain_bytes: int
    """Against what it was."""
    gain_tokens: int | None
    sure: bool = True
    """Whether every rank's own figures are known. If not, this is the most that it can have been."""

    @property
    def starts(self) -> bool:
        """Say whether something is left where by the same terms nothing was."""
        return self.rest_bytes - self.gain_bytes <= 0 < self.rest_bytes

    @property
    def proves_nothing(self) -> bool:
        """Say whether the terms leave something as they are: then it is not they that made a budget negative."""
        return self.rest_bytes - self.gain_bytes > 0


def given_back(subject: Subject, burden: Burden) -> Outcome | None:
    """Return the tightest rank's budget if memory of others had been free; None where no budget is known."""
    seat = subject.tightest
    terms = None if seat is None else terms_of(seat.budget)
    if seat is None or terms is None:
        return None
    pre_loads, availables = _own(subject, seat)
    better = terms._replace(
        pre_load=_least(pre_loads, {who: size.pre_load for who, size in burden.items()}, terms.pre_load),
        available=_least(availables, {who: size.available for who, size in burden.items()}, terms.available),
    )
    sure = None not in {*pre_loads.values(), *availables.values()} and not subject.run.missing
    return compared(seat, terms, better)._replace(sure=sure)


def before_weights(by_rank: Mapping[str, int]) -> dict[str, Held]:
    """Return memory that was gone all the time: label -> bytes."""
    return {who: Held(size, size, size) for who, size in by_rank.items()}


def after_weights(by_rank: Mapping[str, int]) -> dict[str, Held]:
    """Return memory that was taken after the pre-load memory was read."""
    return {who: Held(0, size, size) for who, size in by_rank.items()}


def compared(seat: Seat, terms: Terms, better: Terms) -> Outcome:
    """Return what other terms would have given this rank."""
    token = token_bytes(seat.worker)
    gain = better.rest_bytes - terms.rest_bytes
    tokens = None if token is None else max(better.tokens(token), 0) - max(terms.tokens(token), 0)
    return Outcome(better.rest_bytes, gain, tokens)


def _own(subject: Subject, seat: Seat) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return pre-load and available memory of each rank of the seat's world itself."""
    seats = {one.label: one for one in subject.seats}
    pre_loads: dict[str, int | None] = {}
    availables: dict[str, int | None] = {}
    for process in subject.world_of(seat.process):
        who = label(process)
        budget = seats[who].budget if who in seats else None
        pre_loads[who] = (budget.pre_load_local_bytes if budget else None) or _free(process, "dist.init", after=True)
        availables[who] = (budget.available_local_bytes if budget else None) or _free(
            process, "kv.profile", after=False
        )
    return pre_loads, availables


def _free(process: Process, phase: str, *, after: bool) -> int | None:
    """Return what was free on a rank when the first step of a phase ended, or when it began."""
    step = first_step(process, phase)
    if step is None:
        return None
    return step.free_bytes if after else step.free_before_bytes


def _least(own: Mapping[str, int | None], back: Mapping[str, int], was: int) -> int:
    """Return the minimum over the ranks that are known with their memory back; never less than it was."""
    known = [size + back.get(who, 0) for who, size in own.items() if size is not None]
    return max(min(known), was) if known else was
