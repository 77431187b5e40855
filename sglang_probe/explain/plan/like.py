"""What a run never came to measure, taken from another run of the same server and scaled to this run's own settings.

What this run measured itself stays. Each part that is borrowed is moved by the rule that a plan would move it with.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sglang_probe.explain.plan.after import Graphs, Requests
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.model import CannotPlan
from sglang_probe.explain.plan.server import Server, differences
from sglang_probe.explain.scaling import SLOT_BYTES, blocks


def refuse_another_server(run_id: str, own: Server, like: Facts) -> None:
    """Refuse a run that is no start of the same server.

    Raises:
        CannotPlan: they differ in what weights, bytes of a token, pools and graphs hang on.
    """
    for what, mine, theirs in differences(own, like.server):
        raise CannotPlan(
            f"--like {like.source.run_id} has {what} {theirs}, and {run_id} {mine}; name a run of the same model that"
            " has the same, or leave --like out and give --token-bytes N"
        )


def with_like(facts: Facts, like: Facts) -> Facts:
    """Return the facts with what the run never came to taken from another run of the same server.

    Raises:
        CannotPlan: the other run is of another server.
    """
    refuse_another_server(facts.source.run_id, facts.server, like)
    facts = facts._replace(like=like.source)
    return _with_after(_with_token(facts, like), like)


def _with_token(facts: Facts, like: Facts) -> Facts:
    """Take the bytes of a token, the context length, and what is known of the model's pools."""
    models_own = facts.context is None and facts.context_given is None and like.context_given is None
    context = like.context if models_own else None
    lent = like.token is not None and (facts.token is None or (bool(facts.assumed_token) and not like.assumed_token))
    taken = {"token": like.token if lent else None, "context": context}
    pools = not facts.after.pools
    return facts._replace(
        token=like.token if lent else facts.token,
        mean_token=like.mean_token if lent else facts.mean_token,
        assumed_token=like.assumed_token if lent else facts.assumed_token,
        own_token=facts.own_token or like.own_token,
        page=facts.page if facts.page_known else like.page,
        kv_dtype=facts.kv_dtype or like.kv_dtype,
        latent=like.latent if pools and like.latent is not None else facts.latent,
        plain_pool=like.plain_pool if pools else facts.plain_pool,
        context=facts.context or context,
        max_bs=facts.max_bs or like.max_bs,
        borrowed={**facts.borrowed, **{name: "like" for name, value in taken.items() if value is not None}},
    )


def _with_after(facts: Facts, like: Facts) -> Facts:
    """Take what came after the budget, part by part, where this run did not come to its end."""
    own, theirs = facts.after, like.after
    if own.free is not None:
        return facts
    parts: dict[str, Any] = {}
    rules: dict[str, str] = {}
    if own.kv is None and theirs.kv is not None:
        parts |= _pools(facts, like)
        rules["kv"] = "pool"
    if own.requests is None and theirs.requests is not None:
        parts |= _requests(facts, like)
        rules |= {"slots": "requests" if like.slots_replay else "as_measured", "requests": "request_pool"}
    if own.graphs is None:
        graphs = _graphs(facts, like)
        if graphs is not None:
            parts["graphs"] = graphs
            rules["graphs"] = "like" if graphs == theirs.graphs else "graphs"
    moved = "like" if _same_settings(facts, like) else "as_measured"
    for name in ("attention", "beside"):
        if getattr(own, name) is None and getattr(theirs, name) is not None:
            parts[name] = getattr(theirs, name)
            rules[name] = moved
    if not rules:
        return facts
    return facts._replace(
        after=own._replace(**parts),
        slots_replay=like.slots_replay if "slots" in rules else facts.slots_replay,
        borrowed={**facts.borrowed, **rules},
    )


def _pools(facts: Facts, like: Facts) -> dict[str, Any]:
    """Return the other run's pools with the bytes of a token that this run has."""
    theirs = like.after
    by = Fraction(facts.token, like.token) if facts.token and like.token else Fraction(1)
    pools = tuple(one._replace(bytes=int(one.bytes * by)) if not one.mamba else one for one in theirs.pools)
    scaled = theirs._replace(pools=pools)
    page = theirs.page or 1
    kv = None if theirs.kv is None else theirs.kv + scaled.modelled(page) - theirs.modelled(page)
    return {"tokens": theirs.tokens, "page": theirs.page, "pools": pools, "kv": kv}


def _requests(facts: Facts, like: Facts) -> dict[str, Any]:
    """Return the other run's request pool with rows as wide as this run's context length."""
    theirs = like.after
    shape = theirs.shape
    if shape is None or facts.context is None or like.context is None:
        same = facts.context == like.context
        return {"slots": theirs.slots, "requests": theirs.requests if same else None, "shape": None}
    width = max(shape.width + facts.context - like.context, 1)
    planned, was = (blocks(shape.rows * one * SLOT_BYTES) for one in (width, shape.width))
    cost = shape.cost + planned - was
    wide = Requests(slots=shape.slots, rows=shape.rows, width=width, cost=cost)
    return {"slots": theirs.slots, "requests": cost, "shape": wide}


def _graphs(facts: Facts, like: Facts) -> tuple[Graphs, ...] | None:
    """Return the other run's graphs with this run's batch sizes; None where there is nothing to scale from."""
    if facts.graphs_off:
        return ()
    theirs = like.after.graphs
    most = max(facts.sizes, default=facts.max_bs or 0)
    if theirs is None or not most:
        return theirs
    if most != like.max_bs and not like.after.sizes:
        return None
    draft = facts.speculative
    return tuple(one.up_to(most, draft=draft, sizes=() if one.draft or draft else facts.sizes) for one in theirs)


def _same_settings(facts: Facts, like: Facts) -> bool:
    """Say whether they were started alike in what attention's workspace and the rest may hang on."""
    return all(
        getattr(facts, name) == getattr(like, name)
        for name in ("max_bs", "context", "chunk", "requests_given", "page", "custom_all_reduce")
    )


def nothing_borrowed(facts: Facts) -> str | None:
    """Say that a run given by --like adds nothing; None: it does, or none was given."""
    source = facts.like
    if source is None or facts.borrowed:
        return None
    if facts.after.free is not None:
        return f"--like {source.run_id} adds nothing: {facts.source.run_id} measured all of it itself."
    came = f"it {source.outcome} in {source.failed_phase} itself" if source.failed_phase else f"it is {source.outcome}"
    return (
        f"--like {source.run_id} adds nothing: {came}, and measured nothing that {facts.source.run_id} lacks;"
        " name one that started."
    )
