"""Everything of a plan that the fraction does not move: weights, what is available, the bytes of a token, graphs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from sglang_probe.explain.plan.after import Graphs
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.reserve import default_fraction
from sglang_probe.explain.scaling import (
    capture_sizes,
    element_bytes,
    graph_bytes,
    parameter_bytes,
    scaled,
    split,
)


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
    token_ratio: Fraction | None
    """Of the pools' bytes to those measured, for the same tokens."""
    graphs: int | None
    page: int
    cap: int | None
    context: int | None


def frame_of(facts: Facts, inputs: Inputs) -> Frame:
    """Return everything that the fraction does not move."""
    pre, available, tenants = _given_back(facts, inputs)
    weights = _weights(facts, facts.weights, inputs)
    draft = 0 if inputs.draft is False else _weights(facts, facts.draft_weights, inputs)
    graphs = graphs_planned(facts, inputs)
    moved = [_moved(facts.weights, weights, changed=_moves_weights(inputs))]
    if facts.draft_first:
        moved.append(_moved(facts.draft_weights, draft, changed=_moves_weights(inputs) or inputs.draft is False))
    if facts.graphs_first:
        changed = inputs.cuda_graph_max_bs is not None or inputs.draft is False
        moved.append(_moved(facts.after.graphs_bytes, graphs, changed=changed))
    known = [one for one in moved if one is not None]
    ratio, token = _token(facts, inputs)
    return Frame(
        facts=facts,
        inputs=inputs,
        pre_load=facts.terms.pre_load + pre,
        tenants=tenants,
        weights=weights,
        draft_weights=draft if facts.has_draft else None,
        available=facts.terms.available + available - sum(known) if len(known) == len(moved) else None,
        token=token,
        token_ratio=ratio,
        graphs=graphs,
        page=inputs.page_size or facts.page,
        cap=or_default(inputs.max_total_tokens, facts.cap),
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


def _given_back(facts: Facts, inputs: Inputs) -> tuple[int, int, int]:
    """Return what pre-load and available memory gain, as minima over the ranks, and what others then hold."""
    same = 0
    if turned_off(facts, inputs):
        same += facts.custom_all_reduce_bytes or 0
    if inputs.tp == 1:
        same += facts.communicators_bytes or 0
    theirs = facts.tenants if inputs.tenants is None else inputs.tenants
    back = {label: facts.tenants.get(label, 0) - theirs.get(label, 0) for label in facts.locals}
    pre, available = (
        min(own[index] + back[label] for label, own in facts.locals.items())
        - min(own[index] for own in facts.locals.values())
        for index in (0, 1)
    )
    return same + pre, same + available, max(theirs.values(), default=0)


def turned_off(facts: Facts, inputs: Inputs) -> bool:
    """Say whether the plan gives the custom all-reduce back."""
    return facts.custom_all_reduce and (inputs.custom_all_reduce is False or inputs.tp == 1)


def _weights(facts: Facts, run: int | None, inputs: Inputs) -> int | None:
    if run is None or not _moves_weights(inputs):
        return run
    planned = run if inputs.tp is None else scaled(run, split(facts.tp, inputs.tp))
    if inputs.quantization is None:
        return planned
    old = parameter_bytes(facts.quantization, facts.model_dtype)
    new = parameter_bytes(inputs.quantization, facts.model_dtype)
    return None if old is None or new is None else scaled(planned, new / old)


def _token(facts: Facts, inputs: Inputs) -> tuple[Fraction | None, int | None]:
    """Return the ratio of the bytes of a token to the run's, and the bytes."""
    ratio = Fraction(1)
    own = facts.own_token if inputs.draft is False and facts.own_token is not None else facts.token
    if inputs.tp is not None and not facts.latent:
        ratio *= split(facts.tp, inputs.tp, inputs.kv_heads)
    if inputs.kv_cache_dtype is not None:
        asked = facts.model_dtype if inputs.kv_cache_dtype == "auto" else inputs.kv_cache_dtype
        old, new = element_bytes(facts.kv_dtype), element_bytes(asked)
        if old is None or new is None or not facts.plain_pool:
            return None, inputs.token_bytes
        ratio *= new / old
    if inputs.token_bytes is not None:
        return ratio, inputs.token_bytes
    return ratio, None if own is None else max(scaled(own, ratio), 1)


def graphs_planned(facts: Facts, inputs: Inputs) -> int | None:
    """Return what all graphs take with another largest batch size, or without a draft."""
    if facts.after.graphs is None or (inputs.cuda_graph_max_bs is not None and not facts.after.sizes):
        return None  # not measured, or no decode graph from which others could be scaled
    kept = [one for one in facts.after.graphs if not (one.draft and inputs.draft is False)]
    return sum(_graph(facts, one, inputs.cuda_graph_max_bs) for one in kept)


def _graph(facts: Facts, graph: Graphs, most: int | None) -> int:
    if most is None or not graph.sizes:
        return graph.cost
    draft = facts.speculative
    replays = capture_sizes(max(graph.sizes), draft=draft) == tuple(sorted(graph.sizes))
    count = max(1, len(graph.sizes) * most // max(graph.sizes))
    sizes = capture_sizes(most, draft=draft) if replays else (*range(1, count), most)
    return graph_bytes(graph.cost, len(graph.sizes), len(sizes))


def fraction_of(facts: Facts, inputs: Inputs) -> tuple[float, str | None]:
    """Return the fraction without a wish: given, SGLang's default, or the run's; and the rule that moved it, if any."""
    if inputs.mem_fraction_static is not None:
        return inputs.mem_fraction_static, None
    if facts.fraction_given or facts.variant is None or facts.knobs is None:
        return facts.fraction, None
    changed: dict[str, Any] = {
        "max_bs": inputs.cuda_graph_max_bs,
        "tp": inputs.tp,
        "prefill_tokens": inputs.chunked_prefill_size,
    }
    knobs = facts.knobs._replace(**{name: value for name, value in changed.items() if value is not None})
    if inputs.draft is False:
        knobs = knobs._replace(speculative=None)
    fraction = default_fraction(knobs, facts.variant)
    if fraction == facts.fraction or not 0 < fraction < 1:
        return facts.fraction, None
    return fraction, "default"
