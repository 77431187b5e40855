"""Rank by rank: steps, categories of the ledger and terms of the budget in which the sides differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sglang_probe.explain.diff.model import LedgerRow, RankDiff, StepRow, TermRow
from sglang_probe.explain.diff.values import delta, near, same
from sglang_probe.explain.subject import label
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Budget, Process, Run, Step, Worker
from sglang_probe.timeline.processes import is_cpu, last_ledger, ranks_of

EXACT_TERMS: Final = ("mem_fraction_static", "mem_fraction_static_given", "verified", "state")
BYTE_TERMS: Final = (
    "pre_load_bytes",
    "available_bytes",
    "pre_load_local_bytes",
    "available_local_bytes",
    "slack_bytes",
    "rest_bytes",
)
NO_BUDGET: Final = Budget()


class Key(NamedTuple):
    """What two steps of two runs have in common."""

    phase: str
    detail: str | None
    worker: str | None
    draft_index: int | None
    occurrence: int


def keyed_steps(process: Process) -> dict[Key, Step]:
    """Return the steps of a rank by what pairs them with another run's."""
    seen: dict[tuple[Any, ...], int] = {}
    found: dict[Key, Step] = {}
    for step in process.steps:
        name = (step.phase, step.detail, step.worker, step.draft_index)
        seen[name] = seen.get(name, -1) + 1
        found[Key(*name, seen[name])] = step
    return found


def by_label(run: Run) -> dict[str, Process]:
    """Return the ranks of a run by their labels."""
    return {label(process): process for process in ranks_of(run)}


def rank_diffs(runs: Sequence[Run]) -> tuple[RankDiff, ...]:
    """Return what differs on each rank that every side has."""
    tables = [by_label(run) for run in runs]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    found = (_rank_diff(name, [table[name] for table in tables]) for name in common)
    return tuple(one for one in found if one.steps or one.ledger or one.budget)


def _rank_diff(name: str, ranks: Sequence[Process]) -> RankDiff:
    on_cpu = any(is_cpu(rank) for rank in ranks)
    return RankDiff(
        label=name,
        steps=tuple(_steps(ranks, on_cpu)),
        ledger=() if on_cpu else tuple(_ledger(ranks)),
        budget=tuple(_budget(ranks, on_cpu)),
    )


def _steps(ranks: Sequence[Process], on_cpu: bool) -> Iterator[StepRow]:
    tables = [keyed_steps(rank) for rank in ranks]
    for key in dict.fromkeys(key for table in sorted(tables, key=len, reverse=True) for key in table):
        steps = [table.get(key) for table in tables]
        states = tuple(None if step is None else step.state for step in steps)
        costs = tuple(None if step is None or on_cpu else step.cost_bytes for step in steps)
        known = [cost for cost, step in zip(costs, steps, strict=True) if step is not None and step.state == "ok"]
        if len(set(states)) == 1 and near(known):
            continue
        depth = max(step.depth for step in steps if step is not None)
        yield StepRow(**key._asdict(), depth=depth, states=states, cost_bytes=costs, delta_bytes=delta(costs))


def _ledger(ranks: Sequence[Process]) -> Iterator[LedgerRow]:
    """Rows of the last reading; one that is not known on every side stands for itself and has no delta."""
    steps = [last_ledger(rank) for rank in ranks]
    for category in KEYS:
        amounts = tuple(None if step is None else getattr(step.ledger, category) for step in steps)
        if not near(amounts):
            yield LedgerRow(category=category, bytes=amounts, delta_bytes=delta(amounts))


def target_of(process: Process) -> Worker | None:
    """Return the model that a rank serves."""
    return next((worker for worker in process.workers if worker.worker != "draft"), None)


def _budget(ranks: Sequence[Process], on_cpu: bool) -> Iterator[TermRow]:
    """Terms of the budget. On a CPU those in bytes are a shared host's, and left out."""
    workers = [target_of(rank) for rank in ranks]
    budgets = [NO_BUDGET if one is None or one.budget is None else one.budget for one in workers]
    for term in (*BYTE_TERMS, *EXACT_TERMS):
        values = tuple(getattr(budget, term) for budget in budgets)
        alike = (on_cpu or near(values)) if term in BYTE_TERMS else same(values)
        if not alike:
            yield TermRow(term=term, values=values, delta=delta(values))
    for name in sorted({name for budget in budgets for name in budget.deductions}):
        taken = tuple(budget.deductions.get(name, 0) for budget in budgets)
        if not near(taken):
            yield TermRow(term=f"deductions.{name}", values=taken, delta=delta(taken))
    yield from () if on_cpu else _kv(workers)


def _kv(workers: Sequence[Worker | None]) -> Iterator[TermRow]:
    caches = [None if worker is None else worker.kv for worker in workers]
    for term in ("bytes_per_token", "tokens", "limited_by"):
        values = tuple(None if cache is None else getattr(cache, term) for cache in caches)
        if not (same(values) or (term == "tokens" and _is_noise(values, workers))):
            yield TermRow(term=term, values=values, delta=delta(values))


def _is_noise(tokens: Sequence[Any], workers: Sequence[Worker | None]) -> bool:
    """Say whether counts of tokens differ by less memory than counts as a difference."""
    sizes = {None if worker is None else token_bytes(worker) for worker in workers}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return size is not None and None not in tokens and near([one * size for one in tokens])
