"""Planning forwards: the settings in, every number of the start out. Each is an int of bytes, or None: unknown.

They re-add to the byte:
    available = pre-load - weights - draft weights (and graphs) loaded before - what else came before
    rest = available - slack - deductions
    free = available - pools - requests - attention - graphs - draft weights loaded after - what else came after
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from sglang_probe.explain.formula import Terms
from sglang_probe.explain.plan.after import scaled_pool
from sglang_probe.explain.plan.facts import Facts, with_mamba
from sglang_probe.explain.plan.frame import Frame, frame_of, or_default, turned_off
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.reserve import activations_mib
from sglang_probe.explain.scaling import MIB, SLOT_BYTES, blocks, list_bytes, pool_bytes, request_slots, scaled


class Outlook(NamedTuple):
    """The numbers of one start."""

    fraction: float
    pre_load: int
    tenants: int
    """Others' on the device of the tightest rank."""
    custom_all_reduce: int | None
    communicators: int | None
    weights: int | None
    draft_weights: int | None
    before: int | None
    """Whatever else lies between pre-load and available."""
    available: int | None
    slack: int | None
    deductions: dict[str, int]
    rest: int | None
    minimum: float | None
    """The fraction at which rest is 0."""
    token: int | None
    token_least: int | None
    page: int
    profiled: int | None
    """What memory alone would allow."""
    tokens: int | None
    tokens_most: int | None
    """More than `tokens` where it is not known whether tp makes a token smaller."""
    context: int | None
    concurrency: int | None
    kv: int | None
    slots: int | None
    requests: int | None
    attention: int | None
    graphs: int | None
    beside: int | None
    """Whatever else came after the budget."""
    free: int | None
    activations: int | None
    unbalanced: tuple[int, int] | None
    """Least and most pre-load memory of ranks that SGLang would find too unequal."""
    freed: int | None = None
    """Bytes that it leaves more than the run did where that ran out of memory; None: unknown, or it did not."""
    runs_out: bool | None = None
    """Whether it would run out there again, by what is freed."""
    unexplained: int | None = None
    """What by the plan's sum the run had left at the end of its start, although it ran out; None: nothing."""


def outlook(frame: Frame, fraction: float) -> Outlook:
    """Return every number at one fraction; of a run that ran out of memory also what it frees."""
    planned, ran_out = _outlook(frame, fraction), frame.facts.ran_out
    if ran_out is None:
        return planned
    was = _outlook(frame_of(frame.facts, Inputs()), frame.facts.fraction)
    freed = _freed(frame, was, planned, early=ran_out.early)
    left = was.free if was.free is not None and was.free >= 0 else None
    return planned._replace(freed=freed, runs_out=ran_out.lasts(freed), unexplained=left)


def _freed(frame: Frame, was: Outlook, planned: Outlook, *, early: bool) -> int | None:
    """Return how much more it leaves; what is not known of either, and what no input moves, counts as the same."""
    pairs = [(planned.available, was.available)]
    if not early:
        taken = ["kv", "requests", "attention", "beside"]
        taken += [] if frame.facts.graphs_first else ["graphs"]
        taken += ["draft_weights"] if frame.facts.has_draft and not frame.facts.draft_first else []
        pairs += [(getattr(was, name), getattr(planned, name)) for name in taken]
        fewer = frame.inputs.cuda_graph_max_bs is not None or frame.inputs.draft is False
        if was.graphs is None and fewer:
            return None
    freed = 0
    for more, less in pairs:
        if (more is None) != (less is None):
            return None
        freed += (more or 0) - (less or 0)
    return freed


def _outlook(frame: Frame, fraction: float) -> Outlook:
    facts = frame.facts
    terms = _terms(frame, fraction)
    rest = None if terms is None else terms.rest_bytes
    deductions = dict(facts.deductions)
    if facts.mamba is not None and terms is not None:
        deductions["mamba"] = terms.deductions[-1]
    profiled, most = (_profiled(terms, token) for token in (frame.token, frame.token_least))
    tokens = None if profiled is None else _capped(frame, profiled)
    slots = _slots(frame, tokens) if tokens else None
    kv, requests = _pools(frame, tokens, deductions), _requests(frame, slots)
    beside = None if _pool_moved(frame) else _beside(frame)
    taken = [kv, beside] if facts.after.lumped else [kv, requests, facts.after.attention, beside]
    taken += [] if facts.graphs_first else [frame.graphs]
    taken += [frame.draft_weights] if facts.has_draft and not facts.draft_first else []
    known = [one for one in taken if one is not None]
    whole = terms is not None and len(known) == len(taken)
    return Outlook(
        fraction=fraction,
        pre_load=frame.pre_load,
        tenants=frame.tenants,
        custom_all_reduce=0 if turned_off(facts, frame.inputs) else facts.custom_all_reduce_bytes,
        communicators=0 if frame.inputs.tp == 1 else facts.communicators_bytes,
        weights=frame.weights,
        draft_weights=frame.draft_weights,
        before=_before(frame),
        available=frame.available,
        slack=None if terms is None or rest is None else terms.available - sum(deductions.values()) - rest,
        deductions=deductions,
        rest=rest,
        minimum=None if terms is None or terms.floor is not None else _minimum(frame, terms),
        token=frame.token,
        token_least=frame.token_least,
        page=frame.page,
        profiled=profiled,
        tokens=tokens,
        tokens_most=_capped(frame, most) if most and frame.token_least else None,
        context=frame.context,
        concurrency=at_once(tokens, frame.context, slots),
        kv=kv,
        slots=slots,
        requests=requests,
        attention=facts.after.attention,
        graphs=frame.graphs,
        beside=beside,
        free=frame.available - sum(known) if whole and frame.available is not None else None,
        activations=_activations(facts, frame.inputs),
        unbalanced=frame.unbalanced,
    )


def _pool_moved(frame: Frame) -> bool:
    """Say whether another request pool is asked for, where what it takes is not known by itself. With few tokens it is
    smaller anyhow: then the run's own is taken, which is more."""
    inputs = frame.inputs
    return frame.facts.after.lumped and (inputs.context_length, inputs.max_running_requests) != (None, None)


def _beside(frame: Frame) -> int | None:
    """What else came after the budget: without what others took since, where the plan has others than the run."""
    facts = frame.facts
    beside = facts.after.beside
    theirs = frame.inputs.tenants is not None and "beside" not in facts.borrowed
    return beside - facts.tenants.later if theirs and beside is not None else beside


def _terms(frame: Frame, fraction: float) -> Terms | None:
    if frame.available is None:
        return None
    facts = frame.facts
    terms = facts.terms._replace(available=frame.available, pre_load=frame.pre_load, fraction=fraction)
    if facts.mamba is None:
        return terms
    room = facts.terms.rest_bytes
    share = max(terms.rest_bytes, 0) * facts.mamba // room if room > 0 else facts.mamba
    return with_mamba(terms, share)


def _profiled(terms: Terms | None, token: int | None) -> int | None:
    if terms is None:
        return None
    if terms.rest_bytes <= 0:
        return 0
    return max(terms.tokens(token), 0) if token else None


def at_once(tokens: int | None, context: int | None, slots: int | None) -> int | None:
    """Return how many requests of the context length fit."""
    if tokens is None or context is None:
        return None
    return tokens // context if slots is None else min(tokens // context, slots)


def _minimum(frame: Frame, terms: Terms) -> float:
    """Where the recurrent state scales with the rest, it is empty when the rest is."""
    return terms._replace(deductions=frame.facts.terms.deductions).fraction_for()


def _before(frame: Frame) -> int | None:
    if frame.weights is None or frame.available is None:
        return None
    first = frame.draft_weights if frame.facts.draft_first else 0
    graphs = frame.graphs if frame.facts.graphs_first else 0
    if first is None or graphs is None:
        return None
    return frame.pre_load - frame.available - frame.weights - first - graphs


def _capped(frame: Frame, profiled: int) -> int:
    """Return the tokens of the pool: the cap, whole pages, and the run's own share where something else limits it."""
    shared = scaled(profiled, share_of(frame.facts))
    wanted = shared if frame.cap is None else min(shared, frame.cap)
    return wanted // frame.page * frame.page


def share_of(facts: Facts) -> Fraction:
    """Return the run's tokens to what its budget allowed, where neither memory nor a cap decided."""
    profiled = max(facts.own_terms.tokens(facts.token), 0) if facts.token else 0
    allowed = profiled if facts.cap is None else min(profiled, facts.cap)
    if not facts.tokens or not allowed or allowed // facts.page * facts.page == facts.tokens:
        return Fraction(1)
    return Fraction(facts.tokens, profiled)


def _slots(frame: Frame, tokens: int) -> int | None:
    facts, after = frame.facts, frame.facts.after
    given = or_default(frame.inputs.max_running_requests, facts.requests_given)
    if frame.context is None and given is None:
        return after.slots
    rule = request_slots(tokens, frame.context or 1, given, facts.dp, halved=facts.halved)
    return rule if facts.slots_replay else after.slots


def _requests(frame: Frame, slots: int | None) -> int | None:
    """Return what the device loses by the request pool."""
    shape, context = frame.facts.after.shape, frame.facts.context
    if frame.context is None and context is not None:
        return None  # the model's own context length, which the run was not started with
    if shape is None or slots is None:
        return frame.facts.after.requests if slots == frame.facts.after.slots else None
    wider = frame.context - context if frame.context is not None and context is not None else 0
    planned = (slots + shape.rows - shape.slots) * max(shape.width + wider, 0)
    return blocks(planned * SLOT_BYTES) + shape.cost - blocks(shape.rows * shape.width * SLOT_BYTES)


def _pools(frame: Frame, tokens: int | None, deductions: dict[str, int]) -> int | None:
    """Return what the device loses by the KV pools: their model at the planned tokens, and what was measured beside."""
    after = frame.facts.after
    if not tokens or frame.token_ratio is None:
        return None  # SGLang refuses to start with an empty cache
    if not after.pools or after.kv is None or not after.tokens:
        if not frame.token:
            return None
        return pool_bytes(tokens, frame.page, Fraction(frame.token)) + list_bytes(tokens, frame.page)
    planned = blocks(list_bytes(tokens, frame.page))
    for pool in after.pools:
        if pool.mamba:
            planned += blocks(_state(frame.facts, pool.bytes, deductions), pool.tensors)
        elif not (pool.draft and frame.inputs.draft is False):
            size = scaled_pool(pool, tokens, frame.page, after, frame.token_ratio)
            planned += blocks(size, pool.tensors)
    return planned + after.kv - after.modelled(after.page or 1)


def _state(facts: Facts, size: int, deductions: dict[str, int]) -> int:
    return size * deductions.get("mamba", 0) // facts.mamba if facts.mamba else size


def _activations(facts: Facts, inputs: Inputs) -> int | None:
    tokens = inputs.chunked_prefill_size or facts.chunk
    return None if tokens is None else round(activations_mib(tokens) * MIB)
