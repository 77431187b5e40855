"""Figures that are good to so many bytes, and sums of them: what a log prints with two decimals stays that uncertain.

Worked example, in GiB: 21.73 +- 0.005 available and 166.59 +- 0.005 of weights were 188.32 +- 0.01 before the weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from sglang_probe.collect.logs.model import Fact


class Measured(NamedTuple):
    """A size in bytes, and how far off it may be."""

    bytes: int
    precision: int = 0

    def plus(self, other: Measured) -> Measured:
        """Return the sum: the errors add up."""
        return Measured(self.bytes + other.bytes, self.precision + other.precision)

    def minus(self, other: Measured) -> Measured:
        """Return the difference: the errors add up here, too."""
        return Measured(self.bytes - other.bytes, self.precision + other.precision)

    def times(self, factor: float) -> Measured:
        """Return a multiple by an exact factor."""
        return Measured(round(self.bytes * factor), math.ceil(self.precision * abs(factor)))


def measured(fact: Fact | None, name: str) -> Measured | None:
    """Return a figure of a fact; None where the fact, or the figure in it, is not there."""
    amount = None if fact is None else fact.amount(name)
    return None if amount is None else Measured(amount.bytes, amount.precision_bytes)


def total(parts: list[Measured | None]) -> Measured | None:
    """Return the sum; None where there is nothing to add, or a part is not known."""
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    return Measured(sum(part.bytes for part in known), sum(part.precision for part in known))


def least_of(parts: list[Measured | None]) -> Measured | None:
    """Return the smallest of those that are known."""
    return min((part for part in parts if part is not None), key=lambda part: part.bytes, default=None)
