"""Everything of a plan that the fraction does not move: weights, what is available, the bytes of a token, graphs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from sglang_probe.explain.levers import real_weights
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.tenants import unbalanced
from sglang_probe.explain.reserve import Knobs, default_fraction
from sglang_probe.explain.scaling import element_bytes, parameter_bytes, scaled, split


class Frame(NamedTuple):
    """What does not hang on the fraction."""

    facts: Facts
    inputs: Inputs
    pre_load: int
    tenants: int
    weights: int | None
    draft_weights: int | None
    available: int | None
    token: int | None
    token_least: int | None
    """Less than `token` where it is not known whether tp makes a token smaller: then `token` is the most it can be."""
    token_ratio: Fraction | None
    """Of the pools' bytes to those measured, for the same tokens."""
    graphs: int | None
    page: int
    cap: int | None
    unbalanced: tuple[int, int] | None
    """Least and most pre-load memory of ranks that SGLang would find too unequal."""
    context: int | None


def frame_of(facts: Facts, inputs: Inputs) -> Frame:
    """Return everything that the fraction does not move."""
    pre, available = _given_back(facts, inputs)
    weights = _weights(facts, facts.weights, facts.weights_torch, inputs)
    draft = _weights(facts, facts.draft_weights, facts.draft_weights_torch, inputs)
    draft = 0 if inputs.draft is False else draft
    graphs = graphs_planned(facts, inputs)
    moved = [_moved(facts.weights, weights, changed=_moves_weights(inputs))]
    if facts.draft_first:
        moved.append(_moved(facts.draft_weights, draft, changed=_moves_weights(inputs) or inputs.draft is False))
    if facts.graphs_first:
        changed = inputs.cuda_graph_max_bs is not None or inputs.draft is False
        moved.append(_moved(facts.after.graphs_bytes, graphs, changed=changed))
    known = [one for one in moved if one is not None]
    ratio, token, least = _token(facts, inputs)
    return Frame(
        facts=facts,
        inputs=inputs,
        pre_load=facts.terms.pre_load + pre,
        tenants=max((facts.tenants.available if inputs.tenants is None else inputs.tenants).values(), default=0),
        weights=weights,
        draft_weights=draft if facts.has_draft else None,
        available=facts.terms.available + available - sum(known) if len(known) == len(moved) else None,
        token=token,
        token_least=least,
        token_ratio=ratio,
        graphs=graphs,
        page=inputs.page_size or facts.page,
        cap=or_default(inputs.max_total_tokens, facts.cap),
        unbalanced=_unbalanced(facts, inputs),
        context=or_default(inputs.context_length, facts.context),
    )


def or_default(planned: int | None, run: int | None) -> int | None:
    return run if planned is None else planned or None


def _moves_weights(inputs: Inputs) -> bool:
    return inputs.tp is not None or inputs.quantization is not None


def _moved(run: int | None, planned: int | None, *, changed: bool) -> int | None:
    """Return how much more is taken; None where that is unknown."""
    if not changed:
        return 0
    return None if run is None or planned is None else planned - run


def _given_back(facts: Facts, inputs: Inputs) -> tuple[int, int]:
    """Return what pre-load and available memory gain, as minima over the ranks."""
    same = 0
    if turned_off(facts, inputs):
        same += facts.custom_all_reduce_bytes or 0
    if inputs.tp == 1:
        same += facts.communicators_bytes or 0
    gains = []
    for index, held in enumerate((facts.tenants.pre_load, facts.tenants.available)):
        back = _back(facts, inputs, held)
        was = min((own[index] for own in facts.locals.values()), default=0)
        gains.append(min((own[index] + back.get(rank, 0) for rank, own in facts.locals.items()), default=0) - was)
    return same + gains[0], same + gains[1]


def _back(facts: Facts, inputs: Inputs, held: dict[str, int]) -> dict[str, int]:
    """Return what each rank gets back of what others held: negative where the plan has more on its card."""
    theirs = held if inputs.tenants is None else inputs.tenants
    return {rank: held.get(rank, 0) - theirs.get(rank, 0) for rank in facts.locals}


def _unbalanced(facts: Facts, inputs: Inputs) -> tuple[int, int] | None:
    """Return the ranks' least and most memory where SGLang would refuse them; not where the run itself passed so."""
    if (inputs.tp or facts.tp) < 2 or inputs.tenants is None or unbalanced(facts.locals, {}) is not None:
        return None
    return unbalanced(facts.locals, _back(facts, inputs, facts.tenants.pre_load))


def turned_off(facts: Facts, inputs: Inputs) -> bool:
    """Say whether the plan gives the custom all-reduce back."""
    return facts.custom_all_reduce and (inputs.custom_all_reduce is False or inputs.tp == 1)


def _weights(facts: Facts, run: int | None, torch: int | None, inputs: Inputs) -> int | None:
    """Return what a load of weights costs: as in `explain`, a quantization is of what torch holds of them, and others'
    memory that moved meanwhile is none of them."""
    if run is None or not _moves_weights(inputs):
        return run
    held = run if torch is None else torch
    real = real_weights(run, torch) or run
    by = Fraction(1) if inputs.tp is None else split(facts.tp, inputs.tp)
    planned = run - real + scaled(real, by)
    if inputs.quantization is None:
        return planned
    old = parameter_bytes(facts.quantization, facts.model_dtype)
    new = parameter_bytes(inputs.quantization, facts.model_dtype)
    if old is None or new is None:
        return None
    return planned - scaled(held, by) + scaled(held, by * new / old)


def _token(facts: Facts, inputs: Inputs) -> tuple[Fraction | None, int | None, int | None]:
    """Return the bytes of a token as a ratio to the run's, as they are, and the least that they may be."""
    own = facts.own_token if inputs.draft is False and facts.own_token is not None else facts.token
    if inputs.token_bytes is not None:
        return Fraction(inputs.token_bytes, own) if own else Fraction(1), inputs.token_bytes, None
    ratio = Fraction(1)
    if inputs.kv_cache_dtype is not None:
        asked = facts.model_dtype if inputs.kv_cache_dtype == "auto" else inputs.kv_cache_dtype
        old, new = element_bytes(facts.kv_dtype), element_bytes(asked)
        if old is None or new is None or not facts.plain_pool:
            return None, None, None
        ratio = new / old
    by = [Fraction(1)] if inputs.tp is None or facts.latent else [split(facts.tp, inputs.tp, inputs.kv_heads)]
    if splits_unknown(facts, inputs):
        by.append(Fraction(1))
    if own is None:
        return ratio * max(by), None, None
    most, least = (max(scaled(own, ratio * end), 1) for end in (max(by), min(by)))
    return ratio * max(by), most, least if least < most else None


def splits_unknown(facts: Facts, inputs: Inputs) -> bool:
    """Say whether it is not known if another tp moves the bytes of a token."""
    return inputs.tp is not None and facts.latent is None and inputs.kv_heads is None and inputs.token_bytes is None


def graphs_planned(facts: Facts, inputs: Inputs) -> int | None:
    """Return what all graphs take with another largest batch size, or without a draft."""
    most = inputs.cuda_graph_max_bs
    if facts.after.graphs is None or (most is not None and not facts.after.sizes):
        return None  # not measured, or no decode graph from which others could be scaled
    kept = [one for one in facts.after.graphs if not (one.draft and inputs.draft is False)]
    return sum((one if most is None else one.up_to(most, draft=facts.speculative)).cost for one in kept)


def fraction_of(facts: Facts, inputs: Inputs) -> tuple[float, str | None]:
    """Return the fraction without a wish: given, SGLang's default, or the run's; and the rule that moved it, if any."""
    if inputs.mem_fraction_static is not None:
        return inputs.mem_fraction_static, None
    if facts.fraction_given or facts.variant is None or facts.knobs is None:
        return facts.fraction, None
    fraction = default_fraction(moved_knobs(facts.knobs, inputs), facts.variant)
    if fraction == facts.fraction or not 0 < fraction < 1:
        return facts.fraction, None
    return fraction, "default"


def moved_knobs(knobs: Knobs, inputs: Inputs) -> Knobs:
    """Return what SGLang's reserve hangs on, with what is planned."""
    changed: dict[str, Any] = {
        "max_bs": inputs.cuda_graph_max_bs,
        "tp": inputs.tp,
        "prefill_tokens": inputs.chunked_prefill_size,
    }
    moved = knobs._replace(**{name: value for name, value in changed.items() if value is not None})
    return moved._replace(speculative=None) if inputs.draft is False else moved
