"""What would make room, where a plan does not hold: each change is planned through, and says what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sglang_probe.explain.model import Basis, Lever
from sglang_probe.explain.plan.advice import advised, bound_in_words, interval_for
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.frame import frame_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.wishes import Resolved, ends_of, fraction_for, starts
from sglang_probe.explain.scaling import element_bytes
from sglang_probe.figures import fraction, gib, number

FRACTION: Final = "--mem-fraction-static"
HALF: Final = "fp8_e5m2"
GRAPHS: Final = 8
"""A largest batch size that costs little."""


class Try(NamedTuple):
    """One change."""

    flag: str | None
    value: Any
    what: str
    inputs: Inputs
    basis: Basis = "scaled"


def levers_of(facts: Facts, resolved: Resolved, wishes: Wishes) -> tuple[Lever, ...]:
    """Return what would make room: what is enough by itself first, then by what it gives."""
    inputs = resolved.frame.inputs
    found = [_fraction(resolved, wishes)] if resolved.rule != "solved" else []
    found += [_lever(one, resolved, wishes, facts) for one in _tries(facts, inputs)]
    useful = [one for one in found if one is not None]
    return tuple(sorted(useful, key=lambda one: (not one.enough, one.flag != FRACTION, -(one.gain_bytes or 0))))


def _tries(facts: Facts, inputs: Inputs) -> Iterator[Try]:
    if facts.tenants if inputs.tenants is None else inputs.tenants:
        yield Try(None, None, "the other processes gone from the cards", inputs._replace(tenants={}), "measured")
    if (element_bytes(inputs.kv_cache_dtype or facts.kv_dtype) or Fraction(0)) > 1:
        yield Try("--kv-cache-dtype", HALF, f"--kv-cache-dtype {HALF}", inputs._replace(kv_cache_dtype=HALF))
    if facts.has_draft and inputs.draft is None:
        yield Try(None, None, "without speculative decoding (--no-draft)", inputs._replace(draft=False))
    if facts.custom_all_reduce and facts.custom_all_reduce_bytes and inputs.custom_all_reduce is None:
        off = inputs._replace(custom_all_reduce=False)
        yield Try("--disable-custom-all-reduce", None, "--disable-custom-all-reduce", off)
    largest = inputs.cuda_graph_max_bs or facts.max_bs
    if largest and largest > GRAPHS:
        fewer = inputs._replace(cuda_graph_max_bs=GRAPHS)
        yield Try("--cuda-graph-max-bs", GRAPHS, f"--cuda-graph-max-bs {GRAPHS}", fewer)
    twice = 2 * (inputs.tp or facts.tp)
    yield Try("--tp", twice, f"--tp {twice}", inputs._replace(tp=twice))


def _fraction(resolved: Resolved, wishes: Wishes) -> Lever | None:
    """Another fraction, with all else as planned: the one that `explain` would say, and the least beside it."""
    frame, tried = resolved.frame, resolved.outlook
    ends = resolved.ends or ends_of(frame, wishes)
    if ends is None or tried.unbalanced is not None:
        return None
    to_try = advised(frame, tried, wishes)
    found = ends.nearest(tried.fraction) if to_try is None else to_try
    planned = outlook(frame, found)
    said = f"{FRACTION} {fraction(found)}: {_result(planned)}"
    if found != ends.low:
        said += f"; the least is {fraction(ends.low)} ({_result(outlook(frame, ends.low))})"
    interval = interval_for(frame, tried, wishes)
    return Lever(
        flag=FRACTION,
        value=found,
        gain_bytes=_less(planned.rest, tried.rest),
        gain_tokens=_less(planned.tokens, tried.tokens),
        enough=True,
        basis="scaled",
        says=said if interval is None else f"{said}; {bound_in_words(interval)}",
    )


def _lever(one: Try, resolved: Resolved, wishes: Wishes, facts: Facts) -> Lever | None:
    """What a change gives at the fraction of the plan, and whether with it there is one that holds it all."""
    frame = frame_of(facts, one.inputs)
    planned = outlook(frame, resolved.outlook.fraction)
    tokens, rest = _less(planned.tokens, resolved.outlook.tokens), _less(planned.rest, resolved.outlook.rest)
    free = _less(planned.free, resolved.outlook.free)
    if not any((gain or 0) > 0 for gain in (tokens, rest, free)):
        return None
    solved = resolved.rule == "solved"
    at = fraction_for(frame, wishes, resolved.outlook.fraction) if solved else resolved.outlook.fraction
    enough = at is not None and _all_hold(outlook(frame, at), wishes)
    where = f" at {fraction(at)}" if solved and enough else ""
    said = f"{one.what}: {_gain(rest, free)}; {_result(outlook(frame, at) if at is not None and enough else planned)}"
    return Lever(
        flag=one.flag,
        value=one.value,
        gain_bytes=rest,
        gain_tokens=tokens,
        enough=enough,
        basis=one.basis,
        says=said + where,
    )


def _all_hold(planned: Outlook, wishes: Wishes) -> bool:
    asked = (
        (wishes.tokens, planned.tokens),
        (wishes.concurrency, planned.concurrency),
        (wishes.free_bytes, planned.free),
    )
    return starts(planned) is not False and all((given or 0) >= wanted for wanted, given in asked if wanted is not None)


def _less(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


def _gain(rest: int | None, free: int | None) -> str:
    """What the budget gains, or where that is nothing what stays free."""
    if rest:
        return f"{gib(rest)} GiB more for the KV cache"
    return f"{gib(free)} GiB more free" if free and free > 0 else "as many GiB, smaller tokens"


def _result(planned: Outlook) -> str:
    """What there is with it."""
    if planned.tokens == 0:
        return "still no token" if planned.rest is None or planned.rest > 0 else f"still empty by {gib(-planned.rest)}"
    cache = f"{gib(planned.rest)} GiB of KV cache" if planned.tokens is None else f"{number(planned.tokens)} tokens"
    if planned.tokens_most is not None:
        cache += f" (up to {number(planned.tokens_most)}: whether a token shrinks with tp is not known)"
    return cache if planned.free is None else f"{cache}, {gib(planned.free)} GiB free"
