"""The KV budget of a rank from the figures of a log, each with how far off it may be.

SGLang prints no term of it but what is free around the weights. Pre-load memory is what was free before them:
    printed   `Load weight begin`, or what was free after the weights plus what they took
    implied   (available - deductions - tokens x bytes per token) / (1 - fraction), where all of these are known
The printed one is an estimate: SGLang reads its own before a rank's communicator exists, and takes the least over the
ranks. Where the tokens that SGLang got contradict it, the implied one counts, if it can be one: near the printed one
and less than the card. Otherwise a term is missing, or another fraction was in force, and the printed one stays.

Worked example (TP 8): 59.64 GiB available, fraction 0.83, 1,218,251 tokens of 40,960 bytes: (59.64 - 46.473) / 0.17
= 77.45 GiB before the weights, where 76.63 was printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sglang_probe.collect.logs.model import Fact
from sglang_probe.figures import gib
from sglang_probe.timeline.arithmetic import could_be_pre_load
from sglang_probe.timeline.logs.ledger import card_of
from sglang_probe.timeline.logs.measured import Measured, least_of, measured, total
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.tokens import TokenSize, state_bytes, tokens_of
from sglang_probe.timeline.logs.told import Fraction, Told
from sglang_probe.timeline.model import Budget, Kv, PreLoadBasis

AFTER_BUDGET = ("kv_alloc", "kv_cap", "swa_tokens", "swa_mem", "mamba_alloc", "pool_end", "graph_begin", "capacity")
ESTIMATE = "what was free before the weights, as printed: an estimate, read after this rank's communicator was made"


class Frame(NamedTuple):
    """What all ranks of a start share: SGLang takes the least over them."""

    available: Measured | None
    pre_load: Measured | None
    fraction: Fraction
    minimum_printed: float | None
    """SGLang's own minimum viable fraction, where its message names one."""
    card: Measured | None = None
    """The card's total, where an error names it."""


class PreLoaded(NamedTuple):
    """The pre-load memory, and where it is from."""

    size: Measured | None
    basis: PreLoadBasis
    reason: str
    agrees: bool | None
    """Whether the printed one gives SGLang's tokens; None where that cannot be asked."""


def frame_of(seats: Sequence[Seat], told: Told) -> Frame:
    """Return what the ranks have in common."""
    return Frame(
        available=least_of([available_of(seat) for seat in seats]),
        pre_load=least_of([printed_pre_load(seat) for seat in seats]),
        fraction=told.fraction(),
        minimum_printed=_minimum_printed(told),
        card=card_of(told.log.facts),
    )


def _minimum_printed(told: Told) -> float | None:
    printed = (fact.values.get("minimum") for fact in told.log.facts if fact.kind == "no_memory")
    return next((value for value in printed if isinstance(value, float)), None)


def available_of(seat: Seat) -> Measured | None:
    """Return what was free when the budget was computed: after the weights, a draft's too where it was loaded first."""
    found: Fact | None = None
    for fact in seat.facts:
        if fact.kind in AFTER_BUDGET:
            break
        if fact.kind == "weights_end":
            found = fact
    return measured(found, "avail")


def printed_pre_load(seat: Seat) -> Measured | None:
    """Return what was free before the target's weights, by its own line or else by what came after."""
    begun, ended = seat.of(0, "weights_begin"), seat.of(0, "weights_end")
    if begun:
        return measured(begun[0], "avail")
    return total([measured(ended[0], "avail"), measured(ended[0], "mem_usage")]) if ended else None


def budget_of(seat: Seat, frame: Frame, told: Told, kv: Kv | None, size: TokenSize | None) -> Budget | None:
    """Return a target's budget as far as the log holds it; None where it does not speak of one."""
    available, refused = available_of(seat), seat.first("no_memory")
    if available is None and refused is None and not seat.of(0, "kv_cap"):
        return None
    fraction = frame.fraction
    deductions = _deductions(seat)
    rest = _rest_by_tokens(seat, kv, size, told)
    pre = _pre_load(frame, fraction, deductions, rest)
    slack = None if pre.size is None or fraction.value is None else pre.size.times(1 - fraction.value)
    does_not_follow = pre.agrees is False and pre.basis == "printed"
    by_tokens = rest if does_not_follow else None
    if rest is None or does_not_follow:  # the formula that is shown must give what stands behind it
        rest = _rest_by_terms(frame.available, slack, deductions)
    sizes: dict[str, Measured | None] = {
        "pre_load_bytes": pre.size,
        "available_bytes": frame.available,
        "pre_load_local_bytes": printed_pre_load(seat),
        "available_local_bytes": available,
        "static_budget_bytes": None if pre.size is None or fraction.value is None else pre.size.times(fraction.value),
        "slack_bytes": slack,
        "rest_bytes": rest,
    }
    precisions: dict[str, int | float] = {name: one.precision for name, one in sizes.items() if one and one.precision}
    minimum, how_far = _minimum(frame.available, pre.size, deductions)
    if how_far is not None:
        precisions["minimum_viable_fraction"] = how_far
    if size is not None and size.precision:
        precisions["bytes_per_token"] = size.precision
    known: dict[str, Any] = {name: None if one is None else one.bytes for name, one in sizes.items()}
    return Budget(
        **known,
        mem_fraction_static=fraction.value,
        mem_fraction_static_given=fraction.value if fraction.basis == "told" else None,
        mem_fraction_static_basis=fraction.basis,
        mem_fraction_static_reason=fraction.reason,
        deductions={name: one.bytes for name, one in deductions.items()},
        bytes_per_token=None if size is None else size.bytes,
        result=_result(seat),
        result_unit="tokens" if _result(seat) is not None else None,
        minimum_viable_fraction=minimum,
        minimum_viable_fraction_reason=None if minimum is not None else "the log does not hold its terms",
        minimum_viable_fraction_printed=frame.minimum_printed,
        verified=False if does_not_follow else True if pre.agrees else None,
        verified_reason=_verified_reason(pre, by_tokens),
        precision_bytes=max((one.precision for one in sizes.values() if one is not None), default=None) or None,
        precisions=precisions,
        pre_load_basis=pre.basis,
        pre_load_reason=pre.reason,
    )


def _verified_reason(pre: PreLoaded, by_tokens: Measured | None) -> str | None:
    if pre.agrees:
        return None
    if by_tokens is not None:
        return f"by its tokens it was {gib(by_tokens.bytes, by_tokens.precision)} GiB"
    if pre.agrees is None:
        return "the log does not hold what SGLang computed"
    return "the pre-load memory is computed from the tokens, so they prove nothing"


def _result(seat: Seat) -> int | None:
    """Return what the budget gave, in tokens, where SGLang prints it: beside a cap that was larger."""
    cap = next(iter(seat.of(0, "kv_cap")), None)
    return None if cap is None else cap.count("profiled")


def _deductions(seat: Seat) -> dict[str, Measured]:
    """Return what was taken off the rest before it became tokens."""
    found: dict[str, Measured] = {}
    for fact in seat.of(0, "mm_reserve"):
        size = measured(fact, "size")
        if size is not None:
            found["multimodal"] = size
    for fact in seat.of(0, "mamba_alloc"):
        size = state_bytes(fact)
        if size is not None:
            found["mamba"] = size
    return found


def _rest_by_tokens(seat: Seat, kv: Kv | None, size: TokenSize | None, told: Told) -> Measured | None:
    """Return the rest as the tokens that the budget gave tell it, to a page; None where a cap may have decided."""
    if size is None or kv is None:
        return None
    tokens = kv.profiled_tokens if kv.profiled_tokens is not None else tokens_of(seat, 0)
    if tokens is None or kv.limited_by != "memory":
        return None
    pages = (told.count("page_size") or 1) * size.bytes
    return Measured(tokens * size.bytes, abs(tokens) * size.precision + pages)


def _rest_by_terms(
    available: Measured | None, slack: Measured | None, deductions: dict[str, Measured]
) -> Measured | None:
    if available is None or slack is None:
        return None
    rest = available.minus(slack)
    for one in deductions.values():
        rest = rest.minus(one)
    return rest


def _pre_load(
    frame: Frame, fraction: Fraction, deductions: dict[str, Measured], rest: Measured | None
) -> PreLoaded:
    printed = frame.pre_load
    known = frame.available is not None and rest is not None and fraction.value is not None and fraction.value < 1
    if not known or frame.available is None or rest is None or fraction.value is None:
        return PreLoaded(printed, "unknown" if printed is None else "printed", ESTIMATE if printed else _NOWHERE, None)
    left = frame.available.minus(rest)
    for one in deductions.values():
        left = left.minus(one)
    implied = left.times(1 / (1 - fraction.value))
    if printed is None:
        return PreLoaded(implied, "implied", _IMPLIED, False)
    if abs(implied.bytes - printed.bytes) <= implied.precision + printed.precision:
        return PreLoaded(printed, "printed", ESTIMATE + "; SGLang's tokens agree with it", True)
    card = None if frame.card is None else frame.card.bytes
    if not could_be_pre_load(implied.bytes, implied.precision, printed.bytes, card):
        return PreLoaded(printed, "printed", _NO_PRE_LOAD, False)
    return PreLoaded(implied, "implied", _IMPLIED, False)


_NOWHERE = "the log has no line of what was free before the weights"
_NO_PRE_LOAD = (
    ESTIMATE + "; SGLang's tokens do not follow from it, nor from any that is near: a term is missing, or another"
    " fraction was in force"
)
_IMPLIED = "computed from the tokens that SGLang got: (available - tokens x bytes per token) / (1 - fraction)"


def _minimum(
    available: Measured | None, pre_load: Measured | None, deductions: dict[str, Measured]
) -> tuple[float | None, float | None]:
    """Return 1 - (available - deductions) / pre-load, and how far off it may be."""
    if available is None or pre_load is None or pre_load.bytes <= 0:
        return None, None
    left = available
    for one in deductions.values():
        left = left.minus(one)
    share = left.bytes / pre_load.bytes
    return 1 - share, (left.precision + abs(share) * pre_load.precision) / pre_load.bytes
