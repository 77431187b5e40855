"""Ranks that agree are one: the same steps, states and workers, and every memory figure near the median of them all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from statistics import median_low
from typing import Any, Final, NamedTuple

from msgspec import structs

from sglang_probe.explain.subject import Subject
from sglang_probe.timeline.arithmetic import SAME_BYTES, left_nothing
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Budget, Failure, Kv, Neighbour, Process, Run, Step, Worker
from sglang_probe.timeline.processes import is_cpu, last_ledger

TOLERANCE: Final = 128 << 20
"""Bytes by which a rank's figure may be off the median of those it is told with.

What differs from start to start and asks for nothing is below it: NCCL's channels and buffers differ by tens of MiB
from rank to rank, and so does what an allocator rounds up. What an operator must know is above it: the least a stranger
on the card takes is a CUDA context, 250 MiB or more. It is a thousandth of a card of 140 GiB, the last decimal of a
fraction. A median, since one rank with a tenant of 100 GiB moves a mean of 512 ranks by 200 MiB.
"""
TENANT: Final = 64 << 20
"""Bytes of a foreign process on the card that set a rank apart: as much as `explain` finds worth saying."""
MOST_ROUNDS: Final = 32
"""Groups that are looked for among ranks of the same steps; each of what is left then stands alone."""
UNFINISHED: Final = frozenset({"error", "died", "interrupted", "open"})
_GROUP_ID: Final = re.compile(r"(?<=:)\d+")
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")


class Fold(NamedTuple):
    """Ranks that are told together."""

    processes: tuple[Process, ...]
    shown: Process
    """Whose figures are printed: the tightest rank of the run where it is among them, else the one nearest to their
    median."""
    tightest: Process | None = None
    """The run's tightest rank, where it is the one that is shown."""

    @property
    def labels(self) -> list[str]:
        """Return what its ranks are called."""
        return [process.label or process.role for process in self.processes]


class _Member(NamedTuple):
    process: Process
    figures: tuple[int | None, ...]


def folds_of(run: Run, processes: Sequence[Process]) -> list[Fold]:
    """Return the processes of a run in groups that agree, in the order of the first of each."""
    rank = tightest_of(run)
    places = {id(process): place for place, process in enumerate(processes)}
    classes: dict[Any, list[_Member]] = {}
    for process in processes:
        figures = _figures(process)
        known = tuple([figure is None for figure in figures])
        classes.setdefault((_shape(process), known), []).append(_Member(process, figures))
    groups = [group for members in classes.values() for group in _agreeing(members)]
    groups.sort(key=lambda group: places[id(group[0].process)])
    return [_fold(group, rank) for group in groups]


def tightest_of(run: Run) -> Process | None:
    """Return the rank whose budget has the least available; None where the ranks are alike in it."""
    subject = Subject(run)
    seats = subject.negative or subject.seats
    least = subject.tightest
    if least is None or not any(seat.available > least.available + SAME_BYTES for seat in seats):
        return None
    return least.process


def alone(process: Process, tightest: Process | None = None) -> Fold:
    """Return a process as a group of its own; `tightest` is its run's."""
    return Fold((process,), process, tightest if process is tightest else None)


def _agreeing(members: Sequence[_Member]) -> Iterator[list[_Member]]:
    """Yield the members in groups whose figures are all near the group's medians."""
    rest = list(members)
    for _ in range(MOST_ROUNDS):
        if not rest:
            return
        near = _near(rest, _medians(rest)) or _near(rest, rest[0].figures)
        yield near
        inside = {id(member) for member in near}
        rest = [member for member in rest if id(member) not in inside]
    yield from ([member] for member in rest)


def _near(members: Sequence[_Member], middle: Sequence[int | None]) -> list[_Member]:
    return [member for member in members if _distance(member.figures, middle) <= TOLERANCE]


def _distance(figures: Sequence[int | None], middle: Sequence[int | None]) -> int:
    """Return how far the farthest figure is; those that are unknown are so on both."""
    if figures == middle:
        return 0
    pairs = zip(figures, middle, strict=True)
    return max((abs(one - two) for one, two in pairs if one is not None and two is not None), default=0)


def _medians(members: Sequence[_Member]) -> tuple[int | None, ...]:
    columns = zip(*(member.figures for member in members), strict=True)
    return tuple(None if column[0] is None else median_low(column) for column in columns)


def _fold(group: Sequence[_Member], tightest: Process | None) -> Fold:
    processes = tuple(member.process for member in group)
    if len(processes) > 1 and any(process is tightest for process in processes):
        assert tightest is not None
        return Fold(processes, _without_ids(tightest, processes), tightest)
    middle = _medians(group)
    shown = min(group, key=lambda member: _distance(member.figures, middle)).process
    return Fold(processes, _without_ids(shown, processes), tightest if shown is tightest else None)


def _without_ids(shown: Process, processes: Sequence[Process]) -> Process:
    """Return a process without the ids of its groups in the names of its steps, where others have other ids."""
    own = [step.detail for step in shown.steps]
    if all([step.detail for step in process.steps] == own for process in processes):
        return shown
    return structs.replace(
        shown, steps=tuple(structs.replace(step, detail=kind_of(step.detail)) for step in shown.steps)
    )


@lru_cache(maxsize=4096)
def kind_of(detail: str | None) -> str | None:
    """Return what a step was for without the id of its group, which is another on other ranks: `tp:0` is `tp:*`."""
    return None if detail is None else _GROUP_ID.sub("*", detail)


def _shape(process: Process) -> tuple[Any, ...]:
    """Return what must be the same of ranks that are told together: everything but amounts and times."""
    device = process.device
    return (
        process.role,
        process.label is None,
        None if device is None else (device.kind, device.name),
        process.alive is False,
        process.torn_tail,
        process.no_memory_role,
        bool(process.lost_events),
        bool(tenants_of(process)),
        tuple([_step_shape(step) for step in process.steps]),
        tuple(_worker_shape(worker) for worker in process.workers),
    )


def tenants_of(process: Process) -> list[Neighbour]:
    """Return the other processes on a rank's card that matter."""
    return [one for one in process.neighbours if one.kind == "foreign" and (one.peak_bytes or 0) >= TENANT]


def _step_shape(step: Step) -> tuple[Any, ...]:
    says = step.attributes
    return (
        step.phase,
        kind_of(step.detail),
        step.depth,
        step.worker,
        step.draft_index,
        step.state,
        says.get("disabled"),
        says.get("captured"),
        step.failure and _failure_shape(step.failure),
    )


def _failure_shape(failure: Failure) -> tuple[Any, ...]:
    """Two ranks that ran out of memory say so in the same words and other figures."""
    return failure.type, failure.raised_in, _DIGITS.sub("#", failure.message or "")


def _worker_shape(worker: Worker) -> tuple[Any, ...]:
    budget, kv = worker.budget, worker.kv
    return (
        worker.worker,
        worker.draft_index,
        worker.model_class,
        budget and (budget.state, budget.verified, budget.mem_fraction_static, left_nothing(budget)),
        budget and tuple(budget.deductions),
        kv and (kv.limited_by, tuple(pool.kind for pool in kv.pools)),
    )


def _figures(process: Process) -> tuple[int | None, ...]:
    """Return every figure of memory by which ranks are told apart.

    What is free on a CPU is the host's, at whatever moment a rank came to read it: there only what is its own counts.
    """
    if is_cpu(process):
        return tuple(amount for worker in process.workers for amount in _own_amounts(worker))
    found = [None if process.device is None else process.device.total_bytes]
    found += [step.free_bytes for step in process.steps]
    found += [step.cost_bytes for step in process.steps]
    for worker in process.workers:
        budget, kv = worker.budget or Budget(), worker.kv or Kv()
        own = (budget.pre_load_local_bytes, budget.available_local_bytes, budget.rest_bytes)
        found += [worker.weights_bytes, *own, kv.bytes]
    last = last_ledger(process)
    return (*found, *(() if last is None else _ROWS(last.ledger)))


def _own_amounts(worker: Worker) -> tuple[int | None, int | None]:
    budget, kv = worker.budget or Budget(), worker.kv or Kv()
    return budget.rest_bytes, kv.bytes


_ROWS: Final = attrgetter(*KEYS)


def is_unfinished(fold: Fold) -> bool:
    """Say whether its ranks failed, died or never came to an end."""
    return any(step.state in UNFINISHED for step in fold.shown.steps)
