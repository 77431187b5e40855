"""One rank of a log: its steps under their root, its models, its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.budget import Frame, budget_of
from sglang_probe.timeline.logs.ending import Ending
from sglang_probe.timeline.logs.ledger import card_of, with_ledgers
from sglang_probe.timeline.logs.measured import Measured, measured, total
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.steps import ROOT, Phase, draft_index_of, id_of, step_of, worker_of
from sglang_probe.timeline.logs.tokens import cell_size, kv_of, printed_token_size
from sglang_probe.timeline.logs.told import Told
from sglang_probe.timeline.logs.trouble import BUDGET
from sglang_probe.timeline.model import Budget, Device, Process, Rank, State, Step, Worker

_ROOT_PHASE: Final = "scheduler.init"
_TERMS: Final = (
    "available_bytes", "available_local_bytes", "pre_load_bytes", "mem_fraction_static", "static_budget_bytes",
    "slack_bytes", "deductions", "rest_bytes", "bytes_per_token", "result", "result_unit",
    "minimum_viable_fraction", "minimum_viable_fraction_printed",
)  # fmt: skip


def process_of(
    seat: Seat, phases: Sequence[Phase], told: Told, frame: Frame, ending: Ending, rank: Rank | None, served: int | None
) -> Process:
    """Return a rank as the timeline has it. `served`: the tokens that another rank of the world printed."""
    workers = tuple(_worker(seat, owner, phases, told, frame, ending, served) for owner in range(seat.models))
    budget = workers[0].budget if workers else None
    steps = _steps(seat, phases, ending, budget)
    card = card_of(seat.facts)
    stamps = [fact.entry.ts for fact in seat.facts if fact.entry.ts is not None]
    return Process(
        host=next((fact.entry.host for fact in seat.facts if fact.entry.host is not None), None),
        pid=next((fact.entry.pid for fact in seat.facts if fact.entry.pid is not None), None),
        role="scheduler",
        rank=rank if seat.label is not None else None,
        label=seat.label,
        device=_device(seat, told, card),
        first_ts=min(stamps, default=None),
        last_ts=max(stamps, default=None),
        events=0,
        steps=tuple(steps),
        workers=workers,
    )


def _device(seat: Seat, told: Told, card: Measured | None) -> Device | None:
    capacity = seat.first("capacity")
    is_cpu = told.value("device") == "cpu" or (capacity is not None and capacity.text("device") == "cpu")
    if not is_cpu and card is None:
        return None
    return Device(kind="cpu" if is_cpu else None, total_bytes=None if card is None else card.bytes)


def _worker(
    seat: Seat, owner: int, phases: Sequence[Phase], told: Told, frame: Frame, ending: Ending, served: int | None
) -> Worker:
    loads = [phase for phase in phases if phase.phase == "weights.load" and phase.owner == owner]
    weights = total([phase.cost for phase in loads])
    size = printed_token_size(seat, owner, told)
    kv = kv_of(seat, owner, told, size, served if seat.first("weights_end", "pool_end") is not None else None)
    budget = budget_of(seat, frame, told, kv, cell_size(seat, told)) if owner == 0 else None
    if budget is not None:
        step = _budget_id(ending.budget) if ending.budget is not None else None
        budget = msgspec.structs.replace(budget, state=ending.budget_state, step=step)
    return Worker(
        worker=worker_of(owner),
        draft_index=draft_index_of(owner, seat),
        weights_bytes=None if weights is None else weights.bytes,
        weights_precision_bytes=None if weights is None else weights.precision or None,
        weights_reason=None if weights is not None else "no line of the log says what the weights took",
        model_class=next((phase.detail for phase in loads if phase.detail is not None), None),
        budget=budget,
        kv=kv,
    )


def _steps(seat: Seat, phases: Sequence[Phase], ending: Ending, budget: Budget | None) -> list[Step]:
    """Return the root, and below it every phase in the order of the text; the budget where it is known to have come."""
    steps: list[Step] = []
    made_of: list[Phase | None] = []
    profile = _profile(ending, budget)
    for phase in phases:
        if profile is not None and (phase.phase == "graph.capture" or (phase.phase == "kv.pool" and phase.owner == 0)):
            steps.append(profile)
            made_of.append(None)
            profile = None
        step = step_of(phase, seat, ROOT, 1, phase.state or ending.state)
        steps.append(_with_failure(step, phase, ending))
        made_of.append(phase)
        for inner in phase.inside:
            steps.append(step_of(inner, seat, id_of(phase), 2, inner.state or ending.state))
            made_of.append(None)
    if profile is not None:
        steps.append(profile)
        made_of.append(None)
    if seat.label is None and not steps:
        return []
    told = with_ledgers(steps, made_of, card_of(seat.facts))
    return [_root(seat, ending, told), *told]


def _with_failure(step: Step, phase: Phase, ending: Ending) -> Step:
    """Put the rank's error onto the step that it came to."""
    if phase.state is not None or ending.failure is None or ending.failed_phase != phase.phase:
        return step
    return msgspec.structs.replace(step, failure=ending.failure)


def _profile(ending: Ending, budget: Budget | None) -> Step | None:
    """Return the step of the budget: SGLang prints no line of it, but what comes next shows that it came to it."""
    fact = ending.budget
    if fact is None or budget is None or ending.budget_state is None:
        return None
    attributes: dict[str, Any] = {name: getattr(budget, name) for name in _TERMS}
    free = budget.available_local_bytes
    return Step(
        id=_budget_id(fact),
        parent=ROOT,
        phase=BUDGET,
        depth=1,
        worker="target",
        ts=fact.entry.ts,
        local_time=fact.entry.stamp,
        free_before_bytes=free,
        null_reason="SGLang prints no line of it",
        state=ending.budget_state,
        state_reason="shown by the line that follows from it",
        precision_bytes=None if free is None else round(budget.precisions.get("available_local_bytes", 0)) or None,
        failure=ending.failure if ending.failed_phase == BUDGET else None,
        attributes={name: value for name, value in attributes.items() if value is not None},
    )


def _budget_id(fact: Fact) -> str:
    return f"{fact.entry.file}:{fact.entry.line}:{BUDGET}:"


def _root(seat: Seat, ending: Ending, steps: Sequence[Step]) -> Step:
    """Return the root span: from a rank's first line to the one by which it serves."""
    first = seat.facts[0]
    capacity = seat.first("capacity")
    free = measured(capacity, "avail")
    last = next((step for step in reversed(steps) if step.ledger is not None), None)
    state: State = ending.state
    said = ("max_total_num_tokens", "max_running_requests", "context_len")
    counts = {name: count for name in said if capacity is not None and (count := capacity.count(name)) is not None}
    root = Step(
        id=ROOT,
        parent=None,
        phase=_ROOT_PHASE,
        ts=first.entry.ts,
        local_time=first.entry.stamp,
        free_bytes=None if free is None else free.bytes,
        precision_bytes=None if free is None else free.precision,
        null_reason="the log does not print what was free when it began",
        state=state,
        failure=ending.failure,
        attributes=counts,
    )
    if last is None or last.ledger is None:
        return root
    ledger, precision = last.ledger, dict(last.ledger_precision_bytes)
    if free is not None and last.ledger_total_bytes is None:
        ledger = msgspec.structs.replace(ledger, free=free.bytes)
        precision["free"] = free.precision
    return msgspec.structs.replace(
        root,
        ledger=ledger,
        ledger_total_bytes=last.ledger_total_bytes,
        ledger_total_source=last.ledger_total_source,
        ledger_as_of="after" if free is not None else "last_known",
        ledger_reasons=last.ledger_reasons,
        ledger_precision_bytes=precision,
    )
