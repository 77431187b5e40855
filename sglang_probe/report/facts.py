"""What a rank says of itself that is no amount of memory: ranks that are told together have it in common.

Every attribute of a step counts, and every field of a worker, its budget, its cache and its pools, except those that
are listed here with the reason: so one that is new is never forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from sglang_probe.timeline.arithmetic import left_nothing
from sglang_probe.timeline.model import Budget, Failure, Kv, Neighbour, Pool, Process, Step, Worker

TENANT: Final = 64 << 20
"""Bytes of a foreign process on the card that set a rank apart: as much as `explain` finds worth saying."""
COUNTS: Final = frozenset(
    {
        "full_max_total_num_tokens",
        "max_running_requests",
        "max_total_num_tokens",
        "profiled_tokens",
        "swa_max_total_num_tokens",
        "tokens",
    }
)
"""Attributes that follow from how much memory a replica found: they may be off by `fold.COUNT_TOLERANCE`."""
_MEASURED: Final = "measured: compared through the figures of memory, with their tolerance"
_DERIVED: Final = "follows from figures that are compared"
_IDENTITY: Final = "is another on every rank, or on every replica"
_OF_A_LOG: Final = "how a line of a log told it"
LEFT_OUT: Final = {
    "available_bytes": _MEASURED,
    "available_gib": _MEASURED,
    "available_local_bytes": _MEASURED,
    "bytes": _MEASURED,
    "deductions": "the names are compared with the budget, the amounts are measured",
    "distributed_init_method": _IDENTITY,
    "gpu_id": _IDENTITY,
    "graph_mem_usage_gib": _MEASURED,
    "group_rank": _IDENTITY,
    "log_cost_bytes": _OF_A_LOG,
    "log_place": _OF_A_LOG,
    "log_precision_bytes": _OF_A_LOG,
    "minimum_viable_fraction": _DERIVED,
    "minimum_viable_fraction_printed": _DERIVED,
    "pool_id": _IDENTITY,
    "pre_load_bytes": _MEASURED,
    "pre_load_gib": _MEASURED,
    "private_pool_bytes": _MEASURED,
    "rest_bytes": _DERIVED,
    "result": _DERIVED,
    "slack_bytes": _DERIVED,
    "static_budget_bytes": _DERIVED,
    "weight_load_mem_usage_gib": _MEASURED,
    "window_pool_id": _IDENTITY,
    "world_rank": _IDENTITY,
}
"""Attribute of a step -> why ranks that differ in it may be told together."""
FAILED_HOOKS: Final = frozenset({"failed", "displaced"})
_NUMBERED: Final = re.compile(r"(?<=:)\d+")
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")

Facts = tuple[tuple[str, Any], ...]


class Said(NamedTuple):
    """What a step says in its attributes."""

    facts: Facts
    counts: tuple[tuple[str, int], ...]
    names: frozenset[str]


class Reader:
    """Returns what attributes say; those that are one object are looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[dict[str, Any], Said]] = {}
        self._same: dict[Said, Said] = {}

    def said(self, attributes: dict[str, Any]) -> Said:
        """Return it."""
        found = self._known.get(id(attributes))
        if found is None:
            said = said_of(attributes)
            found = self._known[id(attributes)] = attributes, self._same.setdefault(said, said)
        return found[1]


def said_of(attributes: dict[str, Any]) -> Said:
    """Return what a step's attributes say, in the order of their names; amounts and ids are not in it."""
    facts, counts = [], []
    for name in sorted(attributes):
        value = attributes[name]
        if name in COUNTS and type(value) is int:
            counts.append((name, value))
        elif name not in LEFT_OUT:
            facts.append((name, _without_figures(value) if name.endswith("_reason") else _frozen(value)))
    return Said(tuple(facts), tuple(counts), frozenset(attributes))


def _frozen(value: Any) -> Any:
    if isinstance(value, str):
        return kind_of(value)
    if isinstance(value, list):
        return tuple([_frozen(one) for one in value])
    if isinstance(value, dict):
        return tuple([(kind_of(key), _frozen(one)) for key, one in sorted(value.items())])
    return value


@lru_cache(maxsize=4096)
def kind_of(detail: str | None) -> str | None:
    """Return what a step was for without the id of its group, which is another on other ranks: `tp:0` is `tp:*`."""
    return None if detail is None else _NUMBERED.sub("*", detail)


def _without_figures(value: Any) -> Any:
    return _masked(value) if isinstance(value, str) else _frozen(value)


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    return _DIGITS.sub("#", text)


def frame_of(process: Process) -> tuple[Any, ...]:
    """Return what its steps and its workers are: only ranks of the same ones can be compared figure by figure."""
    device = process.device
    return (
        process.role,
        process.label is None,
        None if device is None else device.kind,
        tuple([_step_frame(step) for step in process.steps]),
        tuple([(worker.worker, worker.draft_index, _pools(worker)) for worker in process.workers]),
    )


def _pools(worker: Worker) -> tuple[Any, ...] | None:
    return None if worker.kv is None else tuple([pool.kind for pool in worker.kv.pools])


def _step_frame(step: Step) -> tuple[Any, ...]:
    failure = step.failure and _failure_frame(step.failure)
    return step.phase, kind_of(step.detail), step.depth, step.worker, step.draft_index, step.state, failure


def _failure_frame(failure: Failure) -> tuple[Any, ...]:
    """Two ranks that ran out of memory say so in the same words and other figures."""
    return failure.type, failure.raised_in, _DIGITS.sub("#", failure.message or "")


class Own(NamedTuple):
    """What a process and its device are."""

    device: str | None
    gone: bool
    torn_tail: bool
    no_memory_role: bool
    lost: int
    """Digits of the number of its lost events."""
    strangers: bool
    unreadable: frozenset[tuple[str, str]]
    """Source and reason of what could not be read."""
    failed_hooks: frozenset[tuple[str | None, str | None, str | None]]
    """Target, state and reason."""


def own_of(process: Process) -> Own:
    """Return what a process is beside its steps."""
    lost = process.lost_events
    return Own(
        None if process.device is None else process.device.name,
        process.alive is False,
        process.torn_tail,
        process.no_memory_role,
        len(str(lost)) if lost else 0,
        bool(tenants_of(process)),
        frozenset([(one.source, one.reason) for one in process.degraded]),
        frozenset([(one.target, one.state, one.reason) for one in process.targets if one.state in FAILED_HOOKS]),
    )


def tenants_of(process: Process) -> list[Neighbour]:
    """Return the other processes on a rank's card that matter."""
    return [one for one in process.neighbours if one.kind == "foreign" and (one.peak_bytes or 0) >= TENANT]


def _fields(of: type[msgspec.Struct], left_out: Iterable[str]) -> tuple[str, ...]:
    """Return the fields that are compared; a reason only tells why another one is as it is."""
    return tuple(name for name in of.__struct_fields__ if name not in set(left_out) and not name.endswith("_reason"))


_BUDGET_OUT: Final = (
    *("pre_load_bytes", "available_bytes", "pre_load_local_bytes", "available_local_bytes"),  # measured
    *("static_budget_bytes", "slack_bytes", "rest_bytes", "result", "precision_bytes", "precisions"),  # derived
    *("minimum_viable_fraction", "minimum_viable_fraction_printed", "step", "deductions"),  # derived, id, by its names
)
WORKER_FIELDS: Final = _fields(
    Worker,
    (
        *("weights_bytes", "weights_torch_bytes", "weights_precision_bytes"),  # measured
        *("budget", "kv"),  # each by its own fields
    ),
)
BUDGET_FIELDS: Final = _fields(Budget, _BUDGET_OUT)
_PRECISIONS: Final = "precision_bytes", "bytes_per_token_precision"
KV_FIELDS: Final = _fields(Kv, ("tokens", "bytes", "profiled_tokens", "pools", *_PRECISIONS))
"""The tokens are counts, the bytes are measured, and pools have fields of their own."""
POOL_FIELDS: Final = _fields(Pool, ("kind", "tokens", "bytes", "precision_bytes"))


_worker, _budget, _kv, _pool = (
    attrgetter(*fields) for fields in (WORKER_FIELDS, BUDGET_FIELDS, KV_FIELDS, POOL_FIELDS)
)


def worker_of(worker: Worker) -> tuple[Any, ...]:
    """Return what a worker, its budget and its cache are but for amounts, to be compared; `told_of` has the names."""
    budget, kv = worker.budget, worker.kv
    return (
        _worker(worker),
        budget and (_budget(budget), tuple(budget.deductions), left_nothing(budget)),
        kv and (_kv(kv), tuple([_pool(pool) for pool in kv.pools])),
    )


def told_of(worker: Worker) -> Facts:
    """Return the same with a name for each."""
    name = worker.worker if worker.draft_index is None else f"{worker.worker} {worker.draft_index}"
    told = [(f"{name}: {field}", value) for field, value in zip(WORKER_FIELDS, _worker(worker), strict=True)]
    if worker.budget is not None:
        values = zip(BUDGET_FIELDS, _budget(worker.budget), strict=True)
        told += [(f"budget of {name}: {field}", value) for field, value in values]
        told += [(f"budget of {name}: deductions", tuple(worker.budget.deductions))]
        told += [(f"budget of {name}: nothing left", left_nothing(worker.budget))]
    if worker.kv is not None:
        told += [(f"KV of {name}: {field}", value) for field, value in zip(KV_FIELDS, _kv(worker.kv), strict=True)]
        for pool in worker.kv.pools:
            values = zip(POOL_FIELDS, _pool(pool), strict=True)
            told += [(f"pool {pool.kind or 'unknown'} of {name}: {field}", value) for field, value in values]
    return tuple(told)


def kv_counts(process: Process) -> tuple[int | None, ...]:
    """Return the tokens of its caches and pools, that may be off as `COUNTS` may."""
    caches = [worker.kv for worker in process.workers if worker.kv is not None]
    return tuple([count for kv in caches for count in (kv.tokens, kv.profiled_tokens, *(p.tokens for p in kv.pools))])
