"""Rank by rank: steps, categories of the ledger and terms of the budget in which the sides differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sglang_probe.explain.diff.model import LedgerRow, RankDiff, StepRow, TermRow
from sglang_probe.explain.diff.precision import alike, is_log, is_printed, of_rows, of_steps, of_term
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
FIGURES: Final = ("mem_fraction_static",)
"""Those that a log has too."""
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
    logs = [is_log(run) for run in runs]
    found = (_rank_diff(name, [table[name] for table in tables], logs) for name in common)
    return tuple(one for one in found if one.steps or one.ledger or one.budget)


def _rank_diff(name: str, ranks: Sequence[Process], logs: Sequence[bool]) -> RankDiff:
    on_cpu = any(is_cpu(rank) for rank in ranks)
    return RankDiff(
        label=name,
        steps=tuple(_steps(ranks, on_cpu, logs)),
        ledger=() if on_cpu else tuple(_ledger(ranks, logs)),
        budget=tuple(_budget(ranks, on_cpu, logs)),
    )


def _steps(ranks: Sequence[Process], on_cpu: bool, logs: Sequence[bool]) -> Iterator[StepRow]:
    tables = [_plainly(keyed_steps(rank)) if any(logs) else keyed_steps(rank) for rank in ranks]
    for key in dict.fromkeys(key for table in sorted(tables, key=len, reverse=True) for key in table):
        steps = [table.get(key) for table in tables]
        states = tuple(None if step is None else step.state for step in steps)
        costs = tuple(None if step is None or on_cpu else step.cost_bytes for step in steps)
        known = [cost for cost, step in zip(costs, steps, strict=True) if step is not None and step.state == "ok"]
        precision = of_steps(steps)
        if (len(set(states)) == 1 and alike(known, precision)) or not _can_be_told(key, steps, logs):
            continue
        depth = max(step.depth for step in steps if step is not None)
        yield StepRow(
            **key._asdict(),
            depth=depth,
            states=states,
            cost_bytes=costs,
            delta_bytes=delta(costs),
            precision_bytes=precision or None,
        )


def _plainly(table: dict[Key, Step]) -> dict[Key, Step]:
    """Return steps as a log can name them: not every release prints what model it loads."""
    named: dict[Key, Step] = {}
    for key, step in table.items():
        plain = key._replace(detail=None) if key.phase == "weights.load" else key
        named[plain._replace(occurrence=sum(one[:4] == plain[:4] for one in named))] = step
    return named


def _can_be_told(key: Key, steps: Sequence[Step | None], logs: Sequence[bool]) -> bool:
    """Say whether a difference is one: what a log does not print is unknown, and no difference; nor does it tell which
    of the processes that did not end well was killed."""
    ended_well = [step is not None and step.state == "ok" for step in steps]
    if any(logs) and not all(logs) and not any(ended_well):
        return False
    for step, log in zip(steps, logs, strict=True):
        if log and step is None and (not is_printed(key.phase, key.detail) or _took_nothing(steps)):
            return False
        if log and step is not None and step.state == "ok" and step.cost_bytes is None:
            return False
        if not log and any(logs) and (step is None or (step.state == "ok" and step.cost_bytes is None)):
            return False
    return True


def _took_nothing(steps: Sequence[Step | None]) -> bool:
    """Say whether a step that a log has no line of cost nothing elsewhere: a capture that is switched off."""
    return all(step is None or (step.state == "ok" and step.cost_bytes == 0) for step in steps)


def _ledger(ranks: Sequence[Process], logs: Sequence[bool]) -> Iterator[LedgerRow]:
    """Rows of the last reading; one that is not known on every side stands for itself and has no delta.

    Where logs stand beside events only what is free is one and the same: a log's other rows are what the device lost,
    those of events are what torch has of it.
    """
    steps = [last_ledger(rank) for rank in ranks]
    mixed = any(logs) and not all(logs)
    if mixed and not all(_came_to_its_end(rank) for rank in ranks):
        return  # a log's last reading is of another moment
    for category in ("free",) if mixed else KEYS:
        amounts = tuple(None if step is None else getattr(step.ledger, category) for step in steps)
        precision = of_rows(steps, category)
        if not alike(amounts, precision) and not (mixed and None in amounts):
            yield LedgerRow(
                category=category, bytes=amounts, delta_bytes=delta(amounts), precision_bytes=precision or None
            )


def _came_to_its_end(rank: Process) -> bool:
    return any(step.depth == 0 and step.state == "ok" and step.free_bytes is not None for step in rank.steps)


def target_of(process: Process) -> Worker | None:
    """Return the model that a rank serves."""
    return next((worker for worker in process.workers if worker.worker != "draft"), None)


def _budget(ranks: Sequence[Process], on_cpu: bool, logs: Sequence[bool]) -> Iterator[TermRow]:
    """Terms of the budget. On a CPU those in bytes are a shared host's, and left out."""
    workers = [target_of(rank) for rank in ranks]
    budgets = [NO_BUDGET if one is None or one.budget is None else one.budget for one in workers]
    mixed = any(logs) and not all(logs)
    for term in (*BYTE_TERMS, *(FIGURES if any(logs) else EXACT_TERMS)):
        values = tuple(getattr(budget, term) for budget in budgets)
        precision = of_term(workers, term, mixed=mixed)
        unchanged = (on_cpu or alike(values, precision)) if term in BYTE_TERMS else same(values)
        if not (unchanged or (any(logs) and None in values)):
            yield TermRow(term=term, values=values, delta=delta(values), precision=precision or None)
    for name in sorted({name for budget in budgets for name in budget.deductions}):
        taken = tuple(budget.deductions.get(name, 0) for budget in budgets)
        if not near(taken):
            yield TermRow(term=f"deductions.{name}", values=taken, delta=delta(taken))
    yield from () if on_cpu else _kv(workers, logs)


def _kv(workers: Sequence[Worker | None], logs: Sequence[bool]) -> Iterator[TermRow]:
    caches = [None if worker is None else worker.kv for worker in workers]
    for term in ("bytes_per_token", "tokens", "limited_by"):
        values = tuple(None if cache is None else getattr(cache, term) for cache in caches)
        precision = of_term(workers, term)
        unchanged = same(values) or (None not in values and bool(precision) and near(values, precision + 1))
        unknown = any(logs) and None in values
        if not (unchanged or unknown or (term == "tokens" and _is_noise(values, workers))):
            yield TermRow(term=term, values=values, delta=delta(values), precision=precision or None)


def _is_noise(tokens: Sequence[Any], workers: Sequence[Worker | None]) -> bool:
    """Say whether counts of tokens differ by less memory than counts as a difference."""
    sizes = {None if worker is None else token_bytes(worker) for worker in workers}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return size is not None and None not in tokens and near([one * size for one in tokens])
