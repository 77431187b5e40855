"""A run as the rules look at it: its ranks, their targets' budgets, the tightest of them, and how it failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import structs

from sglang_probe.timeline.arithmetic import SAME_BYTES, left_nothing
from sglang_probe.timeline.model import Budget, Failure, Process, Run, Step, Worker
from sglang_probe.timeline.processes import ranks_of
from sglang_probe.timeline.worlds import place_of


class Seat(NamedTuple):
    """The target's budget on one rank."""

    process: Process
    worker: Worker
    budget: Budget

    @property
    def label(self) -> str:
        """Return the rank's label."""
        return label(self.process)

    @property
    def available(self) -> float:
        """Return what was available on this rank itself, where known; else what SGLang used."""
        for known in (self.budget.available_local_bytes, self.budget.available_bytes):
            if known is not None:
                return known
        return float("inf")

    @property
    def is_least(self) -> bool:
        """Say whether no rank had less: one with less may have been ended before it said so, but the minimum counts
        it."""
        local, least = self.budget.available_local_bytes, self.budget.available_bytes
        return local is None or least is None or local < least + SAME_BYTES


class Subject:
    """One run; `wanted_tokens` is what its KV cache should hold."""

    def __init__(self, run: Run, wanted_tokens: int = 0) -> None:
        self.run = run
        self.wanted_tokens = wanted_tokens

    @cached_property
    def is_log(self) -> bool:
        """Whether a plain log is all there is: no process lists, no readings, figures of two decimals."""
        return self.run.source == "log"

    @cached_property
    def ranks(self) -> tuple[Process, ...]:
        """The processes that are ranks."""
        return ranks_of(self.run)

    @cached_property
    def by_pid(self) -> dict[tuple[str | None, int], Process]:
        """The processes by host and pid: the first of each."""
        found: dict[tuple[str | None, int], Process] = {}
        for process in self.run.processes:
            if process.pid is not None:
                found.setdefault((process.host, process.pid), process)
        return found

    @cached_property
    def seats(self) -> tuple[Seat, ...]:
        """The targets whose budget was computed, whatever came of it."""
        found = (
            Seat(process, worker, worker.budget)
            for process in self.run.processes
            for worker in process.workers
            if worker.worker != "draft" and worker.budget is not None
        )
        return tuple(seat for seat in found if seat.budget.available_bytes is not None or left_nothing(seat.budget))

    @cached_property
    def negative(self) -> tuple[Seat, ...]:
        """The targets whose budget left nothing."""
        return tuple(seat for seat in self.seats if left_nothing(seat.budget))

    @cached_property
    def tightest(self) -> Seat | None:
        """The target with the least available memory, of those whose budget left nothing if there are any."""
        return min(self.negative or self.seats, key=lambda seat: seat.available, default=None)

    def world_of(self, process: Process) -> tuple[Process, ...]:
        """Return the ranks whose minimum SGLang takes with this one's: those of its replica."""
        return tuple(one for one in self.ranks if not self._has_replicas or _replica(one) == _replica(process))

    @cached_property
    def _has_replicas(self) -> bool:
        """Whether a place in the world is taken more than once: data-parallel replicas, each a world of its own."""
        places = [place for process in self.ranks if (place := place_of(process.rank)) is not None]
        return len(set(places)) < len(places)

    @cached_property
    def failed(self) -> bool:
        """Whether the run did not start."""
        return self.run.outcome in {"failed", "died"}

    @cached_property
    def budget_failed(self) -> bool:
        """Whether the run did not start because a budget left nothing."""
        return self.failed and bool(self.negative)

    def effective(self, *names: str) -> object:
        """Return the first of SGLang's resolved arguments that is known and not None."""
        known = self.run.provenance.effective or {}
        return next((known[name] for name in names if known.get(name) is not None), None)


def _replica(process: Process) -> int | None:
    dp = None if process.rank is None else process.rank.dp
    return None if dp is None else dp.rank


def label(process: Process) -> str:
    """Return a rank's label, or what else the process is."""
    return process.label or process.role


def labels(processes: Iterable[Process]) -> tuple[str, ...]:
    """Return the labels of processes."""
    return tuple(label(process) for process in processes)


_FRAME: Final = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')


def raised_at(failure: Failure) -> str | None:
    """Return SGLang's innermost frame of an exception, `srt/models/llama.py:494 in __init__`; else where it was raised.

    An out-of-memory error is raised in torch, always in the same line: the caller says what asked for the memory.
    """
    frames = _FRAME.findall(failure.stacktrace or "")
    own = [(path, line, name) for path, line, name in frames if "/sglang/" in path]
    if not own:
        return failure.raised_in
    path, line, name = own[-1]
    return f"{path.rpartition('/sglang/')[2]}:{line} in {name}"


_CHAINED: Final = re.compile(
    r"\n\s*(?:During handling of the above exception|The above exception was the direct cause)"
)


def first_of(failure: Failure) -> Failure:
    """Return a failure with the traceback of the first exception of a chain: what was raised before it was raised
    again in other words."""
    whole = failure.stacktrace or ""
    first = _CHAINED.split(whole, maxsplit=1)[0]
    return failure if first == whole else structs.replace(failure, stacktrace=first)


def errors_by_id(process: Process) -> Iterator[Step]:
    """Return for each exception the innermost step that it passed."""
    innermost: dict[str, Step] = {}
    for step in process.steps:
        if step.state == "error":
            key = (step.failure.id if step.failure is not None else None) or step.id
            if key not in innermost or step.depth > innermost[key].depth:
                innermost[key] = step
    yield from innermost.values()
