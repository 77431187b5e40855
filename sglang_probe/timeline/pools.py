"""The KV cache that a worker ended up with, and what limited it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_probe.timeline.model import Kv, Pool, Sample, Step
from sglang_probe.timeline.values import integer, text

_NOT_KV = ("request", "mamba")
"""Pools that hold no keys and values: the request table and recurrent states."""


def kv_of(
    steps: Sequence[Step], samples: Sequence[Sample], worker: str, index: int | None, stages: int | None
) -> Kv | None:
    """Return what a worker's `kv.pool` events say; None where there are none. `stages` is the pipeline's size."""
    owners = _owners(steps, samples)
    own = [step for step in steps if step.phase == "kv.pool" and _owner(step, owners) == (worker, index)]
    reported = [one for one in samples if one.phase == "kv.pool" and _owner(one, owners) == (worker, index)]
    if not own and not reported:
        return None
    whole = _whole(own)
    tokens = integer(whole, "max_total_num_tokens")
    if tokens is None and worker == "target":
        tokens = _served_tokens(steps)
    pools = _leaves(own, reported)
    limited_by, reason = _limited(whole, tokens, worker, _was_profiled(steps, worker, index), stages)
    return Kv(
        tokens=tokens,
        bytes=_sum([pool.bytes for pool in pools if pool.kind not in _NOT_KV]),
        bytes_per_token=integer(whole, "bytes_per_token"),
        pools=pools,
        limited_by=limited_by,
        limited_by_reason=reason,
        profiled_tokens=integer(whole, "profiled_tokens"),
        max_total_tokens_given=integer(whole, "max_total_tokens_given"),
    )


_Worker = tuple[str | None, int | None]


def _owners(steps: Sequence[Step], samples: Sequence[Sample]) -> dict[Any, _Worker]:
    """Return whose each pool is, as its first report says: a target's step may resize its draft's pool too."""
    reports: list[Step | Sample] = [*steps, *samples]
    reports = [one for one in reports if one.attributes.get("pool_id") is not None]
    reports.sort(key=lambda one: one.ts or "", reverse=True)
    return {one.attributes["pool_id"]: (one.worker, one.draft_index) for one in reports}


def _owner(one: Step | Sample, owners: dict[Any, _Worker]) -> _Worker:
    return owners.get(one.attributes.get("pool_id"), (one.worker, one.draft_index))


def _whole(steps: Sequence[Step]) -> dict[str, Any]:
    """Return what the steps around all pools say; a later one, which only resized them, knows less of the budget."""
    merged: dict[str, Any] = {}
    for step in steps:
        if step.detail == "all" and step.state == "ok":
            merged.update({name: value for name, value in step.attributes.items() if value is not None})
    return merged


def _limited(
    whole: dict[str, Any], tokens: int | None, worker: str, profiled: bool, stages: int | None
) -> tuple[str | None, str | None]:
    if whole.get("resized") and worker == "target":
        return "post_capture", "sized again from what the graphs left"
    return limit(whole, tokens, worker, profiled, stages)


def limit(
    whole: dict[str, Any], tokens: int | None, worker: str, profiled: bool, stages: int | None
) -> tuple[str | None, str | None]:
    """Return what decided the number of tokens, or None and why that is not known.

    SGLang takes the least of what the budget allows and --max-total-tokens, rounds it down to whole pages, and takes
    the least over the pipeline's stages. A draft gets its target's number.
    """
    if tokens is None:
        return None, "the number of tokens is not known"
    if worker == "draft":
        return "target", None if not profiled else "its own budget was computed too, and overruled by the target's"
    if integer(whole, "full_max_total_num_tokens") is not None:
        return None, "a hybrid pool shares the budget among full and sliding-window layers: the numbers do not compare"
    page = integer(whole, "page_size") or 1
    allowed, given = integer(whole, "profiled_tokens"), integer(whole, "max_total_tokens_given")
    if given is not None and tokens == given // page * page and (allowed is None or given < allowed):
        return "max_total_tokens", None
    if allowed is None:
        return None, "what the budget alone would allow is not known"
    if tokens == allowed // page * page:
        return "memory", None
    if tokens < allowed and stages is not None and stages > 1:
        return "pp_min", None
    return None, f"{tokens} tokens are neither what the budget allows ({allowed}) nor --max-total-tokens ({given})"


def _was_profiled(steps: Sequence[Step], worker: str, index: int | None) -> bool:
    return any(step.phase == "kv.profile" and step.worker == worker and step.draft_index == index for step in steps)


def _served_tokens(steps: Sequence[Step]) -> int | None:
    """Return what the scheduler serves with, as the end of its init says."""
    roots = [step for step in steps if step.phase == "scheduler.init"]
    return integer(roots[-1].attributes, "max_total_num_tokens") if roots else None


def _leaves(steps: Sequence[Step], samples: Sequence[Sample]) -> tuple[Pool, ...]:
    """Return the pools that were built, each byte once: a pool made of pools stands for nothing of its own."""
    built: list[Step | Sample] = [step for step in steps if step.state == "ok" and step.detail != "all"]
    built += samples
    last = {one.attributes.get("pool_id"): one for one in sorted(built, key=lambda one: one.ts or "")}
    built = [one for one in built if "pool_id" not in one.attributes or last[one.attributes["pool_id"]] is one]
    containers = {one.parent for one in built}
    built = [one for one in built if one.detail == "request" or one.id is None or one.id not in containers]
    built.sort(key=lambda one: one.ts or "")
    windows = {text(one.attributes, "window_pool_id") for one in last.values()} - {None}
    return tuple(_pool(one.attributes, windows) for one in built)


def _pool(attributes: dict[str, Any], windows: set[str | None]) -> Pool:
    return Pool(
        kind="SWA" if attributes.get("pool_id") in windows else text(attributes, "pool"),
        pool_class=text(attributes, "pool_class"),
        tokens=integer(attributes, "tokens"),
        bytes=integer(attributes, "bytes"),
        dtype=text(attributes, "dtype"),
        page_size=integer(attributes, "page_size"),
        layers=integer(attributes, "layers"),
    )


def _sum(parts: Sequence[int | None]) -> int | None:
    """Return the sum; None when there is nothing to add or a part is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None
