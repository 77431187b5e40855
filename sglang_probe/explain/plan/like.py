"""What a run never came to measure, taken from another run of the same model."""

from __future__ import annotations

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.model import CannotPlan


def with_like(facts: Facts, like: Facts) -> Facts:
    """Return the facts with what the run never came to taken from another run of the same model.

    Raises:
        CannotPlan: the other run differs in what these numbers hang on.
    """
    for what, own, theirs in (("--tp", facts.tp, like.tp), ("KV dtype", facts.kv_dtype, like.kv_dtype)):
        if None not in (own, theirs) and own != theirs:
            raise CannotPlan(
                f"--like {like.source.run_id} has {what} {theirs}, and {facts.source.run_id} {own}; name a run of the"
                " same model that has the same"
            )
    if facts.token is not None and facts.after.free is not None:
        return facts
    lacks = {"token": facts.token, "context": facts.context, "after": facts.after.free}
    return facts._replace(
        token=facts.token or like.token,
        own_token=facts.own_token or like.own_token,
        page=facts.page if facts.after.page else like.page,
        kv_dtype=facts.kv_dtype or like.kv_dtype,
        latent=like.latent,
        plain_pool=like.plain_pool,
        context=facts.context or like.context,
        max_bs=facts.max_bs or like.max_bs,
        after=facts.after if facts.after.free is not None else like.after,
        like=like.source,
        borrowed=frozenset(name for name, own in lacks.items() if own is None),
    )
