"""What is asked: the settings that shall differ, and the wishes to solve for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.model import Change

DEFAULT: Final = 0
"""Of a number: SGLang's own default, where the run was given one."""


class Inputs(NamedTuple):
    """The settings to plan with; None: as in the run."""

    mem_fraction_static: float | None = None
    tp: int | None = None
    kv_cache_dtype: str | None = None
    cuda_graph_max_bs: int | None = None
    max_running_requests: int | None = None
    context_length: int | None = None
    chunked_prefill_size: int | None = None
    max_total_tokens: int | None = None
    page_size: int | None = None
    quantization: str | None = None
    custom_all_reduce: bool | None = None
    draft: bool | None = None
    tenants: dict[str, int] | None = None
    """Bytes of others on the device of each rank, by label; empty: nobody."""
    token_bytes: int | None = None
    kv_heads: int | None = None
    """KV heads of the model, which no event says."""


class Wishes(NamedTuple):
    """What the plan is to hold; None: not asked."""

    tokens: int | None = None
    concurrency: int | None = None
    """Requests of the context length at once."""
    free_bytes: int | None = None
    """To stay free after the start."""

    @property
    def any(self) -> bool:
        """Whether anything was asked."""
        return any(wish is not None for wish in self)


FLAGS: Final[dict[str, str]] = {
    "mem_fraction_static": "--mem-fraction-static",
    "tp": "--tp",
    "kv_cache_dtype": "--kv-cache-dtype",
    "cuda_graph_max_bs": "--cuda-graph-max-bs",
    "max_running_requests": "--max-running-requests",
    "context_length": "--context-length",
    "chunked_prefill_size": "--chunked-prefill-size",
    "max_total_tokens": "--max-total-tokens",
    "page_size": "--page-size",
    "quantization": "--quantization",
    "custom_all_reduce": "--disable-custom-all-reduce",
    "draft": "--no-draft",
    "tenants": "--without-tenants",
    "token_bytes": "--token-bytes",
    "kv_heads": "--kv-heads",
}
"""Input -> the flag that sets it."""


def settings(facts: Facts) -> Inputs:
    """Return a run's own settings, all of them."""
    return Inputs(
        mem_fraction_static=facts.fraction,
        tp=facts.tp,
        kv_cache_dtype=facts.kv_dtype,
        cuda_graph_max_bs=facts.max_bs,
        max_running_requests=facts.requests_given,
        context_length=facts.context,
        chunked_prefill_size=facts.chunk,
        max_total_tokens=facts.cap,
        page_size=facts.page,
        quantization=facts.quantization,
        custom_all_reduce=facts.custom_all_reduce,
        draft=facts.has_draft,
        tenants=facts.tenants.available,
        token_bytes=facts.token,
    )


def without_repeats(facts: Facts, inputs: Inputs) -> Inputs:
    """Return the inputs without those that only repeat what the run has."""
    own = settings(facts)
    same = {name: None for name in Inputs._fields if _same(name, getattr(inputs, name), getattr(own, name), facts)}
    return inputs._replace(**same)


def _same(name: str, wanted: Any, own: Any, facts: Facts) -> bool:
    if name == "kv_cache_dtype" and wanted == "auto":
        wanted = facts.model_dtype
    return wanted == own or (wanted == DEFAULT and wanted is not False and own is None)


def changes(facts: Facts, inputs: Inputs) -> tuple[Change, ...]:
    """Return what differs from the run, by flag."""
    own = settings(facts)
    found = []
    for name, flag in FLAGS.items():
        planned = getattr(inputs, name)
        if planned is not None:
            run, planned = _shown(name, getattr(own, name)), _shown(name, planned)
            found.append(Change(flag=flag, run=run, planned=planned))
    return tuple(found)


def _shown(name: str, value: Any) -> Any:
    if name == "tenants":
        return max(value.values(), default=0) if value else 0
    if name in {"custom_all_reduce", "draft"}:
        return {True: "on", False: "off"}.get(value)
    return None if value == DEFAULT else value


def inputs_of(facts: Facts, other: Facts) -> Inputs:
    """Return what another run was started with, as far as it differs from this run."""
    theirs = settings(other)
    replayed = not other.fraction_given and not facts.fraction_given and facts.variant is not None
    known: dict[str, Any] = {
        "mem_fraction_static": None if replayed else other.fraction,
        "token_bytes": None,
    }
    for name in ("max_running_requests", "max_total_tokens"):
        known[name] = getattr(theirs, name) or DEFAULT
    known["context_length"] = other.context_given or (DEFAULT if facts.context_given else None)
    return without_repeats(facts, theirs._replace(**known))
