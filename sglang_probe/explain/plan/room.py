"""What would make room, where a plan does not hold: each change is planned through, and says what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sglang_probe.explain.model import Basis, Lever
from sglang_probe.explain.plan.advice import advised, bound_in_words, interval_for
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.frame import Frame, frame_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.model import CannotPlan, Wish
from sglang_probe.explain.plan.wishes import Resolved, ends_of, fraction_for, solved, starts
from sglang_probe.explain.scaling import element_bytes
from sglang_probe.figures import fraction, gib, number
from sglang_probe.timeline.arithmetic import less

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
    if facts.tenants.available if inputs.tenants is None else inputs.tenants:
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
        gain_bytes=less(planned.rest, tried.rest),
        gain_tokens=less(planned.tokens, tried.tokens),
        enough=True,
        basis="scaled",
        says=said if interval is None else f"{said}; {bound_in_words(interval)}",
    )


def _lever(one: Try, resolved: Resolved, wishes: Wishes, facts: Facts) -> Lever | None:
    """What a change gives, and whether with it there is a fraction that holds it all; None where it does not help.

    With a fraction that is solved for, the change has one of its own; else it is planned at the fraction of the plan.
    """
    frame, tried = frame_of(facts, one.inputs), resolved.outlook
    same = outlook(frame, tried.fraction)
    at = _fraction_with(frame, resolved, wishes)
    planned = same if at is None else outlook(frame, at)
    helped = helps(tried, planned, resolved.wishes)
    if helped is False:
        return None
    enough = None if helped is None else _all_hold(planned, wishes)
    where = "" if planned.fraction == tried.fraction else f" at {fraction(planned.fraction)}"
    gains = planned if _is_full(tried) else same  # of another fraction the budget is no gain, what stays free is
    said = "what it frees was not measured" if helped is None else _gain(tried, gains)
    return Lever(
        flag=one.flag,
        value=one.value,
        gain_bytes=None if helped is None else _gained(tried, gains),
        gain_tokens=less(planned.tokens, tried.tokens),
        enough=enough,
        basis=one.basis,
        says=f"{one.what}: {said}; {_result(planned)}{where}",
    )


def _fraction_with(frame: Frame, resolved: Resolved, wishes: Wishes) -> float | None:
    """Return the fraction to go with a change where the plan's is solved for; None: the plan's."""
    if resolved.rule != "solved":
        return None
    found = fraction_for(frame, wishes, resolved.outlook.fraction)
    if found is not None:
        return found
    try:
        return solved(frame, wishes)
    except CannotPlan:
        return None


def helps(tried: Outlook, planned: Outlook, wishes: Sequence[Wish]) -> bool | None:
    """Say whether a change makes room for what is missing; None: it may, by how much was not measured."""
    if tried.unbalanced is not None and planned.unbalanced is not None:
        return False
    if starts(planned) is False and starts(tried) is not False:
        return False
    gains = list(_gains(tried, planned, wishes))
    if tried.runs_out and planned.freed is None:
        return None if planned.tokens is None or planned.tokens > 0 else False
    start = [gain for gain, is_wish in gains if not is_wish]
    if any((gain or 0) < 0 for gain in start):
        return False
    return tried.unbalanced is not None or any((gain or 0) > 0 for gain, _ in gains)


def _gains(tried: Outlook, planned: Outlook, wishes: Sequence[Wish]) -> Iterator[tuple[int | None, bool]]:
    """Return what a change gives of each thing that is missing, and whether that is only wished."""
    if tried.available is not None and tried.available < 0:
        yield less(planned.available, tried.available), False
    elif tried.tokens == 0 or (tried.tokens is None and (tried.rest or 0) <= 0):
        yield less(planned.rest, tried.rest), False
    if tried.runs_out:
        yield less(planned.freed, tried.freed), False
    elif tried.free is not None and tried.free < 0:
        yield less(planned.free, tried.free), False
    for wish in wishes:
        if wish.holds is False:
            name = WISHED[wish.flag]
            yield less(getattr(planned, name), getattr(tried, name)), True


WISHED: Final = {"--tokens": "tokens", "--concurrency": "concurrency", "--free": "free"}


def _all_hold(planned: Outlook, wishes: Wishes) -> bool:
    asked = (
        (wishes.tokens, planned.tokens),
        (wishes.concurrency, planned.concurrency),
        (wishes.free_bytes, planned.free),
    )
    return starts(planned) is not False and all((given or 0) >= wanted for wanted, given in asked if wanted is not None)


def _gained(tried: Outlook, planned: Outlook) -> int | None:
    """Return what the budget gains; where memory was missing after it, what stays free."""
    if _is_full(tried):
        return less(planned.freed, tried.freed) if tried.runs_out else less(planned.free, tried.free)
    return less(planned.rest, tried.rest)


def _is_full(tried: Outlook) -> bool:
    return bool(tried.tokens != 0 and (tried.runs_out or (tried.free is not None and tried.free < 0)))


def _gain(tried: Outlook, planned: Outlook) -> str:
    """What the budget gains, or where that is nothing, or not what is missing, what stays free."""
    rest, free = less(planned.rest, tried.rest), less(planned.free, tried.free)
    if rest and not _is_full(tried):
        return f"{gib(rest)} GiB more for the KV cache"
    gained = _gained(tried, planned) if _is_full(tried) else free
    return f"{gib(gained)} GiB more free" if gained and gained > 0 else "as many GiB, smaller tokens"


def _result(planned: Outlook) -> str:
    """What there is with it."""
    if planned.tokens == 0:
        return "still no token" if planned.rest is None or planned.rest > 0 else f"still empty by {gib(-planned.rest)}"
    cache = f"{gib(planned.rest)} GiB of KV cache" if planned.tokens is None else f"{number(planned.tokens)} tokens"
    if planned.tokens_most is not None:
        cache += f" (up to {number(planned.tokens_most)}: whether a token shrinks with tp is not known)"
    if planned.free is not None and planned.free < 0:
        return f"{cache}, but still short by {gib(-planned.free)} GiB after the pools"
    cache = cache if planned.free is None else f"{cache}, {gib(planned.free)} GiB free"
    return f"{cache}; still too little where the run ran out" if planned.runs_out else cache
