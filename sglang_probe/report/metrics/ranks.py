"""What each rank of a run spent its memory and its time on, and its KV budget, as samples of metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sglang_probe.report.metrics import catalogue
from sglang_probe.report.metrics.cards import card_id
from sglang_probe.report.metrics.catalogue import Metric, Sample
from sglang_probe.report.names import clipped, rank_names, worker_name
from sglang_probe.report.series import FREE, NS
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Budget, Kv, Process, Run, Step, Worker
from sglang_probe.timeline.processes import first_step, is_cpu, last_ledger

BYTES: Final = "_bytes"
ROOT: Final = "scheduler.init"


def rank_samples(run: Run, name: str) -> Iterator[Sample]:
    """Yield what is known of each process that is a rank, or of which a log tells steps without saying which rank."""
    for process, rank in zip(run.processes, rank_names(run.processes), strict=True):
        if process.label is not None or process.steps or process.workers:
            yield from _process(process, (name, rank))


def _process(process: Process, labels: tuple[str, str]) -> Iterator[Sample]:
    device = process.device
    index = "" if device is None or device.index is None else str(device.index)
    pid = "" if process.pid is None else str(process.pid)
    where = (clipped(process.host or ""), pid, index, card_id(device), clipped((device and device.name) or ""))
    yield Sample(catalogue.RANK_INFO, (*labels, *where), 1)
    root = first_step(process, ROOT)
    yield Sample(catalogue.RANK_START, labels, None if root is None else root.duration_s)
    yield from _memory(process, labels)
    yield from _foreign(process, labels)
    yield from _phases(process.steps, labels)
    for worker in process.workers:
        yield from _worker(worker, (*labels, worker_name(worker)))


def shown_categories(process: Process) -> tuple[str, ...]:
    """Return the rows of a rank's ledger that say something: on a CPU, whose memory is the host's, what is free."""
    return (FREE,) if is_cpu(process) else KEYS


def _memory(process: Process, labels: tuple[str, str]) -> Iterator[Sample]:
    step = last_ledger(process)
    if step is None or step.ledger is None:
        return
    yield Sample(catalogue.MEMORY_LIMIT, labels, step.ledger_total_bytes)
    for key in shown_categories(process):
        held = getattr(step.ledger, key)
        yield Sample(catalogue.MEMORY, (*labels, key), held)
        if held is not None:
            yield Sample(catalogue.MEMORY_PRECISION, (*labels, key), step.ledger_precision_bytes.get(key))


def _foreign(process: Process, labels: tuple[str, str]) -> Iterator[Sample]:
    """Yield what others hold on the device; nothing where pids cannot be told apart, or no list was read."""
    step = last_ledger(process)
    if step is None or step.ledger is None or step.ledger.foreign is None:
        return
    there = [one for one in process.neighbours if one.kind == "foreign" and not one.gone]
    for left_over in (False, True):
        some = [one for one in there if one.left_over is left_over]
        which = (*labels, str(left_over).lower())
        yield Sample(catalogue.FOREIGN_PROCESSES, which, len(some))
        yield Sample(catalogue.FOREIGN, which, _sum(one.bytes for one in some))


def _sum(amounts: Iterable[float | None]) -> float | None:
    """Return the sum; None where a part of it is not known."""
    whole: float = 0
    for amount in amounts:
        if amount is None:
            return None
        whole += amount
    return whole


def _phases(steps: Sequence[Step], labels: tuple[str, str]) -> Iterator[Sample]:
    """Yield cost and seconds of each phase, without what ran inside it: over the phases they sum to the whole."""
    groups: defaultdict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        groups[clipped(step.phase), worker_name(step)].append(step)
    own = own_seconds(steps)
    for (phase, worker), some in groups.items():
        which = (*labels, phase, worker)
        cost = _sum(_own_costs(some))
        yield Sample(catalogue.PHASE_COST, which, cost)
        if cost is not None and any(step.precision_bytes is not None for step in some):
            off = _sum(step.precision_bytes or 0 for step in some)
            yield Sample(catalogue.PHASE_PRECISION, which, off)
        yield Sample(catalogue.PHASE_SECONDS, which, _sum(own.get(step.id) for step in some))


def _own_costs(steps: Sequence[Step]) -> Iterator[int | None]:
    """Yield what each step took itself; nothing for one of unknown cost inside one of these that is known: its cost is
    in that one's own."""
    known = {step.id for step in steps if step.self_delta_bytes is not None}
    for step in steps:
        if step.self_delta_bytes is not None:
            yield -step.self_delta_bytes
        elif step.parent not in known:
            yield None


def own_seconds(steps: Iterable[Step]) -> dict[str, float]:
    """Return by id how long each step took without the steps right inside it, where all of these are known.

    Worked example: a step of 3 s with two inside it of 1 s and 0.5 s has 1.5 s of its own.
    """
    lasted: dict[str, int | None] = {}
    inside: defaultdict[str, list[int | None]] = defaultdict(list)
    for step in steps:
        lasted[step.id] = None if step.duration_s is None else round(step.duration_s * NS)
        if step.parent is not None:
            inside[step.parent].append(lasted[step.id])
    own: dict[str, float] = {}
    for name, whole in lasted.items():
        parts = _sum(inside[name])
        if whole is not None and parts is not None and parts <= whole:  # steps at once, of two threads, are no parts
            own[name] = (whole - parts) / NS
    return own


def _worker(worker: Worker, labels: tuple[str, str, str]) -> Iterator[Sample]:
    yield Sample(catalogue.WEIGHTS, labels, worker.weights_bytes)
    if worker.weights_bytes is not None:
        yield Sample(catalogue.WEIGHTS_PRECISION, labels, worker.weights_precision_bytes)
    if worker.budget is not None:
        yield from _budget(worker.budget, labels)
    if worker.kv is not None:
        yield from _kv(worker.kv, labels)


TERMS: Final = (
    (catalogue.PRE_LOAD, "pre_load_bytes"),
    (catalogue.AVAILABLE, "available_bytes"),
    (catalogue.STATIC, "static_budget_bytes"),
    (catalogue.SLACK, "slack_bytes"),
    (catalogue.REST, "rest_bytes"),
    (catalogue.FRACTION, "mem_fraction_static"),
    (catalogue.FRACTION_GIVEN, "mem_fraction_static_given"),
    (catalogue.MINIMUM, "minimum_viable_fraction"),
    (catalogue.MINIMUM_PRINTED, "minimum_viable_fraction_printed"),
    (catalogue.VERIFIED, "verified"),
)  # fmt: skip
"""Metric of each term of the budget, by its name in the timeline."""


def _budget(budget: Budget, labels: tuple[str, str, str]) -> Iterator[Sample]:
    for metric, term in TERMS:
        value = getattr(budget, term)
        yield Sample(metric, labels, value)
        off = budget.precisions.get(term)
        if value is not None and off is not None:
            yield _precision(metric, (*labels, term.removesuffix(BYTES)), off)
    for deduction, amount in budget.deductions.items():
        yield Sample(catalogue.DEDUCTION, (*labels, clipped(deduction)), amount)


def _precision(metric: Metric, labels: tuple[str, ...], off: float) -> Sample:
    is_ratio = metric.unit == catalogue.FRACTION_PRECISION.unit
    return Sample(catalogue.FRACTION_PRECISION if is_ratio else catalogue.BUDGET_PRECISION, labels, off)


def _kv(kv: Kv, labels: tuple[str, str, str]) -> Iterator[Sample]:
    yield Sample(catalogue.KV_TOKENS, labels, kv.tokens)
    yield Sample(catalogue.KV_BYTES, labels, kv.bytes)
    yield Sample(catalogue.KV_PER_TOKEN, labels, kv.bytes_per_token)
    if kv.bytes is not None:
        yield Sample(catalogue.KV_PRECISION, labels, kv.precision_bytes)
