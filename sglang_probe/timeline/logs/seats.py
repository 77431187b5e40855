"""A log's facts by the rank that printed them, and each fact by the model it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sglang_probe.collect.logs.model import RANK_TOKENS, Fact, LogRun

OF_A_RANK: Final = frozenset(
    {
        "dist_init_begin", "dist_init_end", "mem_baseline", "weights_begin", "weights_end", "weights_committed",
        "kv_cap", "kv_dtype", "kv_alloc", "kv_post_capture", "swa_tokens", "swa_mem", "mamba_alloc", "pool_end",
        "mm_reserve", "graph_begin", "graph_progress", "graph_end", "capacity",
    }
)  # fmt: skip
"""Kinds that only a rank prints: without a rank in their prefix they are of the only one, or of nobody known."""
_OF_POOLS: Final = frozenset({"kv_cap", "kv_dtype", "kv_alloc", "swa_tokens", "swa_mem", "mamba_alloc", "mm_reserve"})
ALONE: Final = "TP0"
"""Label of the rank of a server that prints none because it has only one."""
TROUBLE: Final = frozenset({"exception", "no_memory", "out_of_memory"})


class Seat(msgspec.Struct):
    """What one rank printed, in the order of the text."""

    label: str | None
    """None: the text has no line of a rank, only an error of nobody known."""
    ranks: tuple[tuple[str, int], ...]
    facts: list[Fact]
    owners: list[int] = []
    """For each fact the model it is about: 0 the target, 1 and on the drafts."""

    def of(self, owner: int, *kinds: str) -> list[Fact]:
        """Return the facts of these kinds about one model."""
        pairs = zip(self.facts, self.owners, strict=True)
        return [fact for fact, whose in pairs if whose == owner and fact.kind in kinds]

    def first(self, *kinds: str) -> Fact | None:
        """Return the first fact of these kinds."""
        return next((fact for fact in self.facts if fact.kind in kinds), None)

    @property
    def models(self) -> int:
        """Return how many models this rank speaks of."""
        return max(self.owners, default=0) + 1


def seats_of(log: LogRun) -> tuple[list[Seat], list[Fact]]:
    """Return the ranks in their order, and the facts that name no rank where ranks are named elsewhere."""
    named: dict[str, Seat] = {}
    loose: list[Fact] = []
    for fact in log.facts:
        label = fact.label
        if label is None:
            loose.append(fact)
        else:
            named.setdefault(label, Seat(label, fact.entry.ranks, [])).facts.append(fact)
    if not named and any(fact.kind in OF_A_RANK for fact in loose):
        named[ALONE] = Seat(ALONE, (), [fact for fact in loose if fact.kind in OF_A_RANK | TROUBLE])
        loose = [fact for fact in loose if fact.kind not in OF_A_RANK | TROUBLE]
    elif not named and any(fact.kind in TROUBLE for fact in loose):
        named[""] = Seat(None, (), [fact for fact in loose if fact.kind in TROUBLE])
        loose = [fact for fact in loose if fact.kind not in TROUBLE]
    seats = sorted(named.values(), key=_order)
    for seat in seats:
        seat.owners = owners_of(seat.facts)
    return seats, loose


def _order(seat: Seat) -> tuple[int, ...]:
    numbers = dict(seat.ranks)
    return tuple(numbers.get(name, -1) for name in RANK_TOKENS)


def owners_of(facts: Sequence[Fact]) -> list[int]:
    """Return for each fact of a rank which model it is about.

    Every model runner prints the same lines: the first loads the target, the second a draft. Pools are built in the
    order of loading, whether each is built before the next model loads (before 0.5.14) or after all have.
    """
    owners: list[int] = []
    loads = pools = 0
    loading = False
    for fact in facts:
        if fact.kind == "weights_begin" or (fact.kind == "weights_end" and not loading):
            loads += 1
        loading = fact.kind == "weights_begin" or (loading and fact.kind != "weights_end")
        last = max(loads - 1, 0)
        if fact.kind in _OF_POOLS or fact.kind == "pool_end":
            owners.append(min(pools, last))
            pools += fact.kind == "pool_end"
        elif fact.kind in {"graph_begin", "graph_progress", "graph_end"}:
            owners.append(_draft_of_graph(fact, last) if fact.text("graph") == "draft" else 0)
        elif fact.kind == "kv_post_capture":
            owners.append(1 if fact.text("what") == "draft_allocated" else 0)
        elif fact.kind in {"dist_init_begin", "dist_init_end", "mem_baseline"}:
            owners.append(loads)  # the runner that will load the next model
        else:
            owners.append(0 if fact.kind == "capacity" else last)
    most = max(loads - 1, 0) if loads else 0
    return [min(owner, max(most, 1 if _has_draft_graph(facts) else 0)) for owner in owners]


def _draft_of_graph(fact: Fact, last: int) -> int:
    """Return which draft a graph is of: the one of its step, where a draft has several layers; else the last loaded."""
    step = fact.count("step")
    return step + 1 if step is not None and step < last else max(last, 1)


def _has_draft_graph(facts: Sequence[Fact]) -> bool:
    return any(fact.text("graph") == "draft" or fact.text("what") == "draft_allocated" for fact in facts)
