"""The KV cache of a run that only a log tells of: its tokens, what they take, and what limited them, as it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.implied import looks_given
from sglang_probe.explain.log_tokens import TokenSize, token_size
from sglang_probe.explain.model import Finding
from sglang_probe.explain.set_aside import end_of_start
from sglang_probe.explain.subject import Subject, label
from sglang_probe.figures import gib, number
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Kv, Process, Worker


class Cache(NamedTuple):
    """The cache of the rank that says most of it."""

    process: Process
    worker: Worker
    kv: Kv
    token: TokenSize | None


def kv_cache_in_a_log(subject: Subject, limits: dict[str, str]) -> Iterator[Finding]:
    """What the server serves with. `limits`: what limited it -> how a person says that."""
    known = list(_caches(subject))
    if not known or subject.failed:
        return
    cache = max(known, key=lambda one: (len(one.kv.pools), -(one.kv.tokens or 0)))
    kv, token = cache.kv, cache.token
    limit = _limit(kv, limits) if _reproduces(known) else _NOT_ITS_BUDGET
    parts = [_size(cache), _spread(known), _window(known), *_parts(cache), limit]
    silent = [label(process) for process in subject.ranks if not _has_pool(process)]
    some = len(silent) < len(subject.ranks)
    yield Finding(
        rule="kv_cache",
        severity="info",
        says=" ".join(part for part in parts if part),
        numbers={
            "tokens": kv.tokens,
            "bytes": kv.bytes,
            "bytes_per_token": None if token is None else token.bytes,
            "bytes_per_token_basis": "unknown" if token is None else token.basis,
            "limited_by": kv.limited_by,
            "free_bytes": min(
                (left for one in subject.ranks if (left := end_of_start(one)) is not None), default=None
            ),
            **_halves(cache),
            "precision_bytes": kv.precision_bytes,
        },
        notes=(
            *(() if token is None else (f"a token takes {token.says}",)),
            *((f"{named(silent)} printed no line of a pool: unknown, not a failure",) if silent and some else ()),
        ),
        confidence="certain" if kv.limited_by is not None and _reproduces(known) else "likely",
    )


def _reproduces(caches: Sequence[Cache]) -> bool:
    """Say whether no budget contradicts its tokens, and every rank has as many: else what is said holds of some."""
    budgets = (one.worker.budget for one in caches)
    return not any(budget is not None and budget.verified is False for budget in budgets) and _alike(caches)


_NOT_ITS_BUDGET: Final = "What limits it is not known: not every rank's tokens follow from its budget."


def _spread(caches: Sequence[Cache]) -> str:
    """Say that the ranks have different numbers of tokens, where they do: what is said is of one of them."""
    tokens = sorted(one.kv.tokens or 0 for one in caches)
    if _alike(caches):
        return ""
    return f"The ranks are not alike: {number(tokens[0])} to {number(tokens[-1])} tokens; this is of one of them."


def _alike(caches: Sequence[Cache]) -> bool:
    return len({one.kv.tokens for one in caches}) == 1


def _caches(subject: Subject) -> Iterator[Cache]:
    for process in subject.ranks:
        for worker in process.workers:
            if worker.worker == "target" and worker.kv is not None and worker.kv.tokens is not None:
                yield Cache(process, worker, worker.kv, token_size(subject, process, worker))


def _size(cache: Cache) -> str:
    kv, token = cache.kv, cache.token
    each = "" if token is None else f" of {number(token.bytes)} B"
    size = "" if kv.bytes is None or _halves(cache) else f", {gib(kv.bytes)} GiB on each rank"
    return f"The KV cache has {number(kv.tokens)} tokens{each}{size}."


def _parts(cache: Cache) -> Iterator[str]:
    """Say what keys and values take, where a pool prints them apart: they need not be alike."""
    pools = [pool for pool in cache.kv.pools if pool.kind != "mamba"]  # whose slots are no tokens
    halves, tokens = _halves(cache), next((pool.tokens for pool in pools if pool.bytes is not None), None)
    if halves:
        both = halves["k_bytes"] + halves["v_bytes"]
        pool = "" if tokens in {None, cache.kv.tokens} else f" for {number(tokens)} tokens"
        yield f"K {gib(halves['k_bytes'])} GiB and V {gib(halves['v_bytes'])} GiB{pool}: {gib(both)} GiB a rank."


def _halves(cache: Cache) -> dict[str, int]:
    for step in cache.process.steps:
        k, v = step.attributes.get("k_bytes"), step.attributes.get("v_bytes")
        if step.phase == "kv.pool" and step.worker != "draft" and isinstance(k, int) and isinstance(v, int):
            return {"k_bytes": k, "v_bytes": v}
    return {}


def _window(caches: list[Cache]) -> str:
    """Say how many tokens the layers of a sliding window have."""
    for one in caches:
        swa = next((pool for pool in one.kv.pools if pool.kind == "SWA" and pool.tokens is not None), None)
        if swa is not None and swa.tokens != one.kv.tokens:
            return (
                f"It is a sliding-window pool: {number(one.kv.tokens)} full-layer tokens, {number(swa.tokens)} window"
                " tokens."
            )
    return ""


def _limit(kv: Kv, limits: dict[str, str]) -> str:
    if kv.limited_by is not None:
        return limits.get(kv.limited_by, "")
    if kv.tokens is not None and looks_given(kv.tokens):
        return (
            f"{number(kv.tokens)} is a person's number (a multiple of 1,024): most likely it is --max-total-tokens that"
            " limits it."
        )
    return f"What limits it is not known{f': {kv.limited_by_reason}' if kv.limited_by_reason else ''}."


def _has_pool(process: Process) -> bool:
    return any(worker.kv is not None and worker.kv.pools for worker in process.workers)
