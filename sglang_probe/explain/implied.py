"""What SGLang's tokens imply of the two terms that no log prints: the pre-load memory and the fraction in force.

    rest = tokens x bytes of a token = available - pre-load x (1 - fraction)
    pre-load = (available - rest) / (1 - fraction)          where the fraction is known
    fraction = 1 - (available - rest) / pre-load            where the pre-load memory is
Worked example (TP 8): 59.64 available, 1,218,251 tokens of 40,960 B are 46.47, fraction 0.83: pre-load 77.46 GiB, where
76.63 was printed after the communicator existed. The printed one would have left 59.64 - 76.63 x 0.17 = 46.61 GiB.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from sglang_probe.catalogue.default_fraction import defaults, releases_with
from sglang_probe.explain.log_tokens import TokenSize, seat_token, sharing
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.explain.told import positive
from sglang_probe.figures import number
from sglang_probe.timeline.arithmetic import could_be_pre_load, is_capped

ROUND: Final = 1024
"""Largest page that divides a budget's tokens by itself: 128."""


class Fraction(NamedTuple):
    """A fraction that the arithmetic leans on."""

    value: float
    says: str
    """Where it is from."""
    assumed: bool


class Implied(NamedTuple):
    """The tokens of a rank, and what they mean."""

    seat: Seat
    token: TokenSize
    tokens: int
    available: int
    printed: int
    """The pre-load memory by the lines around the weights."""
    precision: int
    """How far off each of the two may be."""
    card: int | None = None
    """The card's total, where an error names it."""

    @property
    def rest(self) -> int:
        """Return what the budget gave to the KV cache."""
        return self.tokens * self.token.bytes

    @property
    def rest_off(self) -> int:
        """Return how far off that may be: one token, and the token's own error."""
        return abs(self.tokens) * self.token.precision + self.token.bytes

    @property
    def fraction(self) -> float:
        """Return the fraction that the printed pre-load memory means."""
        return 1 - (self.available - self.rest) / self.printed

    @property
    def fraction_off(self) -> float:
        """Return how far off that may be."""
        return (self.precision + self.rest_off + abs(1 - self.fraction) * self.precision) / self.printed

    def pre_load(self, fraction: float) -> int:
        """Return the pre-load memory that a fraction means."""
        return round((self.available - self.rest) / (1 - fraction))

    def pre_load_off(self, fraction: float) -> int:
        """Return how far off that may be."""
        return math.ceil((self.precision + self.rest_off) / (1 - fraction))

    def can_be(self, fraction: float) -> bool:
        """Say whether there was such a pre-load memory: near the printed one, and less than the card."""
        off = self.pre_load_off(fraction) + self.precision
        return could_be_pre_load(self.pre_load(fraction), off, self.printed, self.card)

    def budget(self, fraction: float) -> int:
        """Return what the printed pre-load memory would have left."""
        return self.available - round(self.printed * (1 - fraction))


def implied_of(subject: Subject) -> Implied | None:
    """Return what the tokens of a log's tightest rank mean; None where a term is unknown, or a cap gave the tokens."""
    seat = subject.tightest
    if seat is None or not subject.is_log:
        return None
    budget, kv = seat.budget, seat.worker.kv
    tokens = budget.result if budget.result is not None else None if kv is None else kv.tokens
    printed = min((one.budget.pre_load_local_bytes for one in subject.seats if one.budget.pre_load_local_bytes),
                  default=None)  # fmt: skip
    token = _shared(seat) or seat_token(subject, seat)
    unclear = budget.deductions or is_capped(seat.worker) or (kv is not None and kv.limited_by in _NOT_THE_BUDGET)
    unclear = unclear or (positive(subject.effective("pp_size")) or 1) > 1  # a stage with less may have decided
    if tokens is None or budget.available_bytes is None or not printed or token is None or unclear:
        return None
    off = max(budget.precisions.get("available_bytes", 0), budget.precisions.get("pre_load_local_bytes", 0))
    cards = [one.device.total_bytes for one in subject.ranks if one.device is not None and one.device.total_bytes]
    return Implied(seat, token, tokens, budget.available_bytes, printed, math.ceil(off), min(cards, default=None))


def _shared(seat: Seat) -> TokenSize | None:
    """Return what a token takes of a budget that drafts share, where more than the target's pool is known of it."""
    budget, own = seat.budget, None if seat.worker.kv is None else seat.worker.kv.bytes_per_token
    if budget.bytes_per_token is None or own is None or budget.bytes_per_token <= own:
        return None
    off = round(budget.precisions.get("bytes_per_token", 0))
    says = f"{number(budget.bytes_per_token)} +- {number(off)} B, the target's and the draft's pools over the tokens"
    return TokenSize(budget.bytes_per_token, off, says, "measured")


_NOT_THE_BUDGET: Final = frozenset({"pp_min", "hybrid_swa", "target", "post_capture"})


def fraction_of(subject: Subject, implied: Implied) -> Fraction | None:
    """Return the fraction that a log names, else the one default of old releases that its figures leave possible."""
    budget = implied.seat.budget
    if budget.mem_fraction_static is not None and 0 < budget.mem_fraction_static < 1:
        return Fraction(budget.mem_fraction_static, budget.mem_fraction_static_reason or "", False)
    _, tensor = sharing(subject)
    fitting = [value for value in defaults(tensor) if _may_be(implied, value)]
    if len(fitting) != 1 or not _is_of_old(implied):
        return None
    says = (
        f"assumed: the log names none, and of SGLang's defaults for TP {tensor} only that of"
        f" {releases_with(tensor, fitting[0])} fits the figures"
    )
    return Fraction(fitting[0], says, True)


def _may_be(implied: Implied, fraction: float) -> bool:
    """Say whether a fraction puts the pre-load memory at the printed one, or a communicator's size above it."""
    means, off = implied.pre_load(fraction), implied.pre_load_off(fraction) + implied.precision
    return implied.printed - off <= means and implied.can_be(fraction)


def _is_of_old(implied: Implied) -> bool:
    """Say whether the log is of a release with fixed defaults: until 0.4.2 `Load weight end` did not say what the
    weights took, and it is the difference of two lines, so twice as far off."""
    off = implied.seat.worker.weights_precision_bytes
    return off is not None and off > implied.precision


def looks_given(tokens: int) -> bool:
    """Say whether tokens are most likely a person's number, --max-total-tokens: a budget's are no multiple of 1024."""
    return tokens > 0 and tokens % ROUND == 0
