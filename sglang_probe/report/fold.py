"""Ranks that agree are one: the same steps, states and workers, and every memory figure near the median of them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from statistics import median_low
from typing import Any, Final, NamedTuple

from msgspec import structs

from sglang_probe.explain.subject import Subject, labels
from sglang_probe.report.facts import Reader, frame_of, kind_of, kv_counts, own_of, worker_of
from sglang_probe.timeline.arithmetic import SAME_BYTES
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Budget, Kv, Process, Run, Worker
from sglang_probe.timeline.processes import is_cpu, last_ledger

TOLERANCE: Final = 128 << 20
"""Bytes by which a rank's figure may be off the median of those it is told with.

What differs from start to start and asks for nothing is below it: NCCL's channels and buffers differ by tens of MiB
from rank to rank, and so does what an allocator rounds up. What an operator must know is above it: the least a stranger
on the card takes is a CUDA context, 250 MiB or more. It is a thousandth of a card of 140 GiB, the last decimal of a
fraction. A median, since one rank with a tenant of 100 GiB moves a mean of 512 ranks by 200 MiB.
"""
COUNT_TOLERANCE: Final = 0.01
"""Part by which a count that follows from memory (KV tokens) may be off: replicas find a few MiB more or less each. How
far apart they are is said beside them."""
MOST_ROUNDS: Final = 32
"""Groups that are looked for among ranks of the same steps; each of what is left then stands alone."""
MOST_MOVES: Final = 8
"""Times that a group is moved to its own medians."""
UNFINISHED: Final = frozenset({"error", "died", "interrupted", "open"})


class Fold(NamedTuple):
    """Ranks that are told together."""

    processes: tuple[Process, ...]
    shown: Process
    """Whose figures are printed: the tightest rank of the run where it is among them, else the one nearest to their
    median."""
    tightest: Process | None = None
    """The run's tightest rank, where it is the one that is shown."""
    mates: tuple[str, ...] = ()
    """Other ranks that are on a card of one of these."""

    @property
    def labels(self) -> list[str]:
        """Return what its ranks are called."""
        return list(labels(self.processes))


class _Member(NamedTuple):
    process: Process
    figures: tuple[int | None, ...]
    counts: tuple[int | None, ...]


def folds_of(run: Run, processes: Sequence[Process]) -> list[Fold]:
    """Return the processes of a run in groups that agree, in the order of the first of each."""
    rank = tightest_of(run)
    mates = card_mates(processes)
    places = {id(process): place for place, process in enumerate(processes)}
    frames: dict[Any, list[Process]] = {}
    for process in processes:
        frames.setdefault(frame_of(process), []).append(process)
    reader = Reader()
    groups = [
        group
        for alike in frames.values()
        for members in _of_one_kind(alike, mates, reader)
        for group in _agreeing(members)
    ]
    groups.sort(key=lambda group: places[id(group[0].process)])
    return [_fold(group, rank, mates) for group in groups]


def _of_one_kind(
    processes: Sequence[Process], mates: dict[int, tuple[str, ...]], reader: Reader
) -> Iterator[list[_Member]]:
    """Yield processes with the same steps in groups that have every fact in common.

    An attribute that one of them does not have at all is not compared where it is a log's, which prints some of one
    rank alone.
    """
    said = [[reader.said(step.attributes) for step in process.steps] for process in processes]
    of_a_log = any(process.pid is None for process in processes)
    shared = [_shared({one.names for one in column}, of_a_log) for column in zip(*said, strict=True)]
    kinds: dict[Any, list[_Member]] = {}
    for process, steps in zip(processes, said, strict=True):
        facts, counts = [], list(kv_counts(process))
        for one, names in zip(steps, shared, strict=True):
            facts.append(one.facts if names is None else tuple([fact for fact in one.facts if fact[0] in names]))
            counts += [count for name, count in one.counts if names is None or name in names]
        figures = _figures(process)
        known = tuple([figure is None for figure in (*figures, *counts)])
        workers = tuple([worker_of(worker) for worker in process.workers])
        kind = own_of(process), bool(mates.get(id(process))), workers, tuple(facts), known
        kinds.setdefault(kind, []).append(_Member(process, figures, tuple(counts)))
    yield from kinds.values()


def _shared(names: set[frozenset[str]], of_a_log: bool) -> frozenset[str] | None:
    """Return the names that all have, where some are a log's; else None."""
    if len(names) < 2 or not (of_a_log or any("log_place" in one for one in names)):
        return None
    return frozenset.intersection(*names)


def card_mates(processes: Sequence[Process]) -> dict[int, tuple[str, ...]]:
    """Return for each process (by `id`) that is on a card with others what those are called."""
    cards = Counter(card for process in processes if (card := _card(process)) is not None)
    if not cards or max(cards.values()) < 2:
        return {}
    on_card: dict[Any, list[Process]] = {}
    for process in processes:
        card = _card(process)
        if card is not None and cards[card] > 1:
            on_card.setdefault(card, []).append(process)
    return {
        id(one): labels(other for other in found if other is not one)
        for found in on_card.values()
        for one in found
    }


def _card(process: Process) -> tuple[str | None, str] | None:
    device = process.device
    return None if device is None or device.uuid is None or is_cpu(process) else (process.host, device.uuid)


def tightest_of(run: Run) -> Process | None:
    """Return the rank whose budget has the least available; None where the ranks are alike in it."""
    subject = Subject(run)
    seats = subject.negative or subject.seats
    least = subject.tightest
    if least is None or not any(seat.available > least.available + SAME_BYTES for seat in seats):
        return None
    return least.process


def alone(process: Process, tightest: Process | None = None, mates: tuple[str, ...] = ()) -> Fold:
    """Return a process as a group of its own; `tightest` is its run's, and `mates` are on its card."""
    return Fold((process,), process, tightest if process is tightest else None, mates)


def off_by(fold: Fold, other: Fold) -> int | None:
    """Return by how many bytes the farthest figure of one group is off the other's; None where they do not have the
    same ones."""
    here, there = (_figures(one.shown) for one in (fold, other))
    if frame_of(fold.shown) != frame_of(other.shown) or len(here) != len(there):
        return None
    return _distance(here, there)


def _agreeing(members: Sequence[_Member]) -> Iterator[list[_Member]]:
    """Yield the members in groups whose figures are all near the medians of their own group."""
    rest = list(members)
    for _ in range(MOST_ROUNDS):
        if not rest:
            return
        near = _near(rest, _middle(rest)) or _near(rest, rest[0])
        near = _settled(near, rest) or rest[:1]
        yield near
        inside = {id(member) for member in near}
        rest = [member for member in rest if id(member) not in inside]
    yield from ([member] for member in rest)


def _settled(near: list[_Member], rest: Sequence[_Member]) -> list[_Member]:
    """Return a group, moved to where its own medians are, and then without those that are not near them."""
    for _ in range(MOST_MOVES):
        if len(near) == len(rest):
            break
        moved = _near(rest, _middle(near))
        if not moved or len(moved) == len(near):
            break
        near = moved
    while near:
        inside = _near(near, _middle(near))
        if len(inside) == len(near):
            break
        near = inside
    return near


def _near(members: Sequence[_Member], middle: _Member) -> list[_Member]:
    figures, counts = middle.figures, middle.counts
    return [
        member
        for member in members
        if (member.figures == figures or _distance(member.figures, figures) <= TOLERANCE)
        and (member.counts == counts or _same_counts(member.counts, counts))
    ]


def _distance(figures: Sequence[int | None], middle: Sequence[int | None]) -> int:
    """Return how far the farthest figure is; those that are unknown are so on both."""
    if figures == middle:
        return 0
    pairs = zip(figures, middle, strict=True)
    return max((abs(one - two) for one, two in pairs if one is not None and two is not None), default=0)


def _same_counts(counts: Sequence[int | None], middle: Sequence[int | None]) -> bool:
    pairs = zip(counts, middle, strict=True)
    return all(same_count(one, two) for one, two in pairs if one is not None and two is not None)


def same_count(one: int, two: int) -> bool:
    """Say whether counts that follow from memory are near enough."""
    return abs(one - two) <= COUNT_TOLERANCE * max(abs(one), abs(two))


def _middle(members: Sequence[_Member]) -> _Member:
    figures, counts = [member.figures for member in members], [member.counts for member in members]
    return _Member(members[0].process, _medians(figures), _medians(counts))


def _medians(rows: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    if len(set(rows)) == 1:
        return rows[0]
    return tuple(None if column[0] is None else median_low(column) for column in zip(*rows, strict=True))


def _fold(group: Sequence[_Member], tightest: Process | None, mates: dict[int, tuple[str, ...]]) -> Fold:
    processes = tuple(member.process for member in group)
    on_card = tuple(dict.fromkeys(label for process in processes for label in mates.get(id(process), ())))
    if len(processes) > 1 and any(process is tightest for process in processes):
        assert tightest is not None
        return Fold(processes, _without_ids(tightest, processes), tightest, on_card)
    middle = _middle(group).figures
    shown = min(group, key=lambda member: _distance(member.figures, middle)).process
    return Fold(processes, _without_ids(shown, processes), tightest if shown is tightest else None, on_card)


def _without_ids(shown: Process, processes: Sequence[Process]) -> Process:
    """Return a process without the ids of its groups in the names of its steps, where others have other ids."""
    own = [step.detail for step in shown.steps]
    if all([step.detail for step in process.steps] == own for process in processes):
        return shown
    return structs.replace(
        shown, steps=tuple(structs.replace(step, detail=kind_of(step.detail)) for step in shown.steps)
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
