"""Between which fractions a server can live: enough for the weights and some tokens, and room for what comes after.

    lowest  = 1 - (available - deductions - tokens x bytes per token) / pre-load
    highest = 1 - (what graphs, attention and activations need) / pre-load
Worked example (the story): lowest 1 - 21.697 / 93.999 = 0.7692 for an empty cache; SGLang itself would set 14.500 GiB
aside, so highest = 1 - 14.500 / 93.999 = 0.8457: any fraction between. Were 25 GiB needed, highest = 0.7340: empty by
(0.7692 - 0.7340) x 93.999 = 3.303 GiB.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from sglang_probe.explain.formula import terms_of
from sglang_probe.explain.log_tokens import bytes_of_token
from sglang_probe.explain.model import Basis
from sglang_probe.explain.set_aside import rule_of_thumb, taken_after
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.figures import UNKNOWN, gib
from sglang_probe.timeline.arithmetic import floor_binds
from sglang_probe.timeline.model import Budget

NEAR: Final = 0.001
"""By which a minimum of a log's figures may be off SGLang's own and still be the same: its pre-load is an estimate."""


class Bound(NamedTuple):
    """The highest fraction, and what it is made of."""

    fraction: float
    needs_bytes: int
    basis: Basis
    says: str
    whose: str = ""
    """Whose rule of thumb it is."""


class Interval(NamedTuple):
    """The fractions that work on the tightest rank."""

    lowest: float
    tokens: int
    """That `lowest` has room for."""
    highest: Bound | None
    pre_load_bytes: int

    @property
    def empty_by_bytes(self) -> int | None:
        """Return by how much no fraction works; None where one does, or the upper bound is unknown."""
        top = 1.0 if self.highest is None else self.highest.fraction
        short = round((self.lowest - top) * self.pre_load_bytes)
        return short if short > 0 else None

    @property
    def advice(self) -> float | None:
        """Return a fraction to try: the highest, else the lowest with a little more; two decimals where these fit."""
        if self.empty_by_bytes is not None:
            return None
        if self.highest is None:
            tried = min(_up(self.lowest, 3) + 0.01, 0.999)
            return tried if tried > self.lowest else None
        for decimals in (2, 3):
            tried = _down(self.highest.fraction, decimals)
            if tried > self.lowest:
                return tried
        return None

    @property
    def despite(self) -> float | None:
        """Return the fraction that starts where it is only SGLang's own reserve that leaves no room for one: the least,
        and a little more. None: there is room, or no fraction starts."""
        assumed = self.highest is not None and self.highest.basis == "assumed"
        if self.empty_by_bytes is None or not assumed or self.lowest >= 1:
            return None
        return round(min(float(at_least(self.lowest)) + 0.001, 0.9999), 4)


def interval_of(subject: Subject, seat: Seat, wanted_tokens: int = 0) -> Interval | None:
    """Return the fractions between which this server can live; None where a term is unknown or a floor decides."""
    terms = terms_of(seat.budget)
    token = bytes_of_token(subject, seat)
    if terms is None or floor_binds(seat.budget) or (wanted_tokens and token is None):
        return None
    if seat.budget.minimum_viable_fraction is None:
        return None  # a deduction hangs on the fraction
    printed, own = seat.budget.minimum_viable_fraction_printed, seat.budget.minimum_viable_fraction
    # SGLang's own is exact to four decimals, and that of a log's lines is not: the higher one is safe.
    above = max(printed - own, 0.0) if printed is not None and seat.budget.precisions else 0.0
    lowest = terms.fraction_for(wanted_tokens * (token or 0)) + above
    return Interval(lowest, wanted_tokens, highest_of(subject, seat), terms.pre_load)


def highest_of(subject: Subject, seat: Seat) -> Bound | None:
    """Return the highest fraction that leaves room for what comes after the pools."""
    thumb, pre_load = rule_of_thumb(subject), seat.budget.pre_load_bytes
    if not pre_load:
        return None
    measured = taken_after(seat)
    if thumb is None:
        if measured is None:
            return None
        says = (
            f"the start itself took {gib(measured)} GiB after the KV pools (measured); serving's activations"
            " come on top"
        )
        return Bound(1 - measured / pre_load, measured, "measured", says)
    needs = max(thumb.bytes, measured or 0)
    so_far = "" if measured is None else f"; of it the start took {gib(measured)} GiB (measured)"
    says = (
        f"{thumb.whose} rule of thumb sets {gib(thumb.bytes)} GiB aside for graphs and activations (assumed:"
        f" {thumb.formula}){so_far}"
    )
    return Bound(1 - needs / pre_load, needs, "assumed", says, thumb.whose)


def at_least(value: float) -> str:
    """Return the least fraction of four decimals that is not below a bound."""
    return f"{_up(value, 4):.4f}"


def minimum_of(budget: Budget) -> float | None:
    """Return a budget's minimum viable fraction: of a log's figures SGLang's own, where its message names one near it.

    Worked example: 1 - 12.25 / 137.90 = 0.91117 of two decimals, and SGLang, of exact figures, says 0.9113.
    """
    own, printed = budget.minimum_viable_fraction, budget.minimum_viable_fraction_printed
    near = own is not None and printed is not None and abs(printed - own) <= NEAR
    return printed if budget.precisions and near else own


def shown_minimum(budget: Budget) -> str:
    """Return a budget's minimum viable fraction as it is printed: rounded up, as `at_least`, so that both are one."""
    minimum = minimum_of(budget)
    return UNKNOWN if minimum is None else at_least(minimum)


def equals_minimum(budget: Budget) -> str:
    """Return what the formula of the minimum comes to; SGLang's own, where the printed figures give another."""
    own, shown = budget.minimum_viable_fraction, shown_minimum(budget)
    if own is None or at_least(own) == shown:
        return f" = {shown}"
    return f", which is {shown} by SGLang's message, of exact figures"


def at_most(value: float) -> str:
    """Return the largest fraction of four decimals that is not above a bound."""
    return f"{_down(value, 4):.4f}"


def _up(value: float, decimals: int) -> float:
    scaled = value * 10.0**decimals - 1e-9  # 0.0308 in binary may lie above itself
    return math.ceil(scaled) / 10.0**decimals if math.isfinite(scaled) else value


def _down(value: float, decimals: int) -> float:
    scaled = value * 10.0**decimals
    return math.floor(scaled) / 10.0**decimals if math.isfinite(scaled) else value
