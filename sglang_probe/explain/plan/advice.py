"""Which fraction to try: the same rule as `explain` has, on the planned numbers.

The fraction must leave room for the tokens (lowest) and for what comes after the pools (highest): the larger of what
SGLang's own rule of thumb sets aside for graphs and activations and of what this run was measured to take.
"""

from __future__ import annotations

from sglang_probe.explain.feasible import Bound, Interval, at_most
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.frame import Frame, moved_knobs
from sglang_probe.explain.plan.inputs import Wishes
from sglang_probe.explain.plan.wishes import has_tokens
from sglang_probe.explain.reserve import reserve_mib
from sglang_probe.explain.scaling import MIB
from sglang_probe.figures import gib


def interval_for(frame: Frame, planned: Outlook, wishes: Wishes) -> Interval | None:
    """Return the fractions between which the planned server can live; None where a term is unknown, or no fraction
    decides (a floor on the slack, a deduction that scales with the rest)."""
    tokens = max(wishes.tokens or 0, (wishes.concurrency or 0) * (frame.context or 0))
    if planned.minimum is None or frame.facts.mamba is not None or (tokens and not frame.token):
        return None
    lowest = planned.minimum + tokens * (frame.token or 0) / frame.pre_load
    return Interval(lowest, tokens, _highest(frame), frame.pre_load)


def advised(frame: Frame, planned: Outlook, wishes: Wishes) -> float | None:
    """Return the fraction that `explain` would say to try, where with it all that is wished holds."""
    interval = interval_for(frame, planned, wishes)
    value = None if interval is None else interval.advice or interval.despite
    if value is None or not 0 < value < 1:
        return None
    then = outlook(frame, value)
    asked = (
        (wishes.tokens, then.tokens),
        (wishes.concurrency, then.concurrency),
        (0 if wishes.free_bytes is None and then.free is not None else wishes.free_bytes, then.free),
    )
    held = all(given is not None and given >= wanted for wanted, given in asked if wanted is not None)
    return value if held and has_tokens(then) else None


def bound_in_words(interval: Interval) -> str:
    """Name the upper bound, with its figure."""
    highest = interval.highest
    if highest is None:
        return "what comes after the KV pools is not known, so no upper bound"
    top = at_most(highest.fraction)
    if highest.basis == "assumed":
        needs = gib(highest.needs_bytes)
        return f"at most {top}, by {highest.whose} rule of thumb: {needs} GiB for graphs and activations"
    return f"at most {top}: the start itself took {gib(highest.needs_bytes)} GiB after the KV pools"


def _highest(frame: Frame) -> Bound | None:
    facts = frame.facts
    if facts.aside is None or frame.pre_load <= 0:
        return None
    needs = facts.aside.needs_bytes
    if facts.aside.basis == "assumed" and facts.thumb is not None:
        needs += int(reserve_mib(moved_knobs(facts.thumb.knobs, frame.inputs), facts.thumb.variant) * MIB)
        needs -= facts.thumb.bytes
    return facts.aside._replace(fraction=1 - needs / frame.pre_load, needs_bytes=needs)
