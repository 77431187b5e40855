"""The KV budget as a row of amounts that lead from the pre-load memory to what is left, as a waterfall draws them."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from sglang_probe.figures import fraction
from sglang_probe.report.budget import budget_lines
from sglang_probe.report.plain import printable
from sglang_probe.timeline.arithmetic import floor_binds
from sglang_probe.timeline.model import Budget, Process, Worker

Measure = Literal["absolute", "relative", "total"]
ROUNDING: Final = 1 << 10
"""Bytes by which SGLang's own rest may differ from its terms: floats of GiB."""


class Bar(NamedTuple):
    """One bar: where the sum begins, what is added to it, or what it has come to."""

    name: str
    measure: Measure
    bytes: int
    """Of a relative bar what is added, negative where it is taken; of a total the sum so far."""
    kind: str = ""
    """What it is coloured by: a category of the ledger, or `sum`, `slack`, `other`."""


def worker_data(process: Process, worker: Worker) -> dict[str, Any]:
    """Return the budget of one worker: the formula with its values as text, and the bars, or why there are none."""
    alone = process.rank is not None and process.rank.world is not None and process.rank.world.size == 1
    which = worker.worker if worker.draft_index is None else f"{worker.worker} {worker.draft_index}"
    bars = bars_of(process, worker)
    budget = worker.budget or Budget()
    return {
        "name": printable(which),
        "model": worker.model_class,
        "lines": budget_lines(worker, alone=alone),
        "bars": [bar._asdict() for bar in bars],
        "off": {name: round(far) for name, far in budget.precisions.items() if name.endswith("_bytes")},
        "why": None if bars else why_none(worker),
        "fails": budget.rest_bytes is not None and budget.rest_bytes <= 0 and worker.worker != "draft",
    }


def why_none(worker: Worker) -> str:
    """Say why a budget cannot be drawn."""
    budget = worker.budget
    if budget is None:
        return "no KV budget of this worker was recorded"
    terms = {
        "pre-load memory": budget.pre_load_bytes,
        "available memory": budget.available_bytes,
        "slack": budget.slack_bytes,
    }
    unknown = [name for name, value in terms.items() if value is None]
    reason = f": {printable(budget.verified_reason)}" if budget.verified_reason else ""
    return f"the budget cannot be drawn, for its {' and '.join(unknown)} is unknown{reason}"


def bars_of(process: Process, worker: Worker) -> list[Bar]:
    """Return the bars of a budget; none where a term of it is unknown.

    Worked example, in GiB: 93.999 pre-load - 42.300 slack = 51.699 static budget; - 72.302 weights = -20.603 rest.
    The relative bars add up to the totals to the byte.
    """
    budget = worker.budget
    if budget is None or None in (budget.pre_load_bytes, budget.available_bytes, budget.slack_bytes):
        return []
    pre_load, available, slack = budget.pre_load_bytes or 0, budget.available_bytes or 0, budget.slack_bytes or 0
    static = pre_load - slack
    bars = [
        Bar("pre-load memory", "absolute", pre_load, "sum"),
        Bar(_slack_name(budget), "relative", -slack, "slack"),
        Bar("static budget", "total", static, "sum"),
    ]
    taken = [*_weights(process, worker)]
    else_in_use = pre_load - available - sum(taken_bytes for _, taken_bytes, _ in taken)
    bars += [Bar(name, "relative", -amount, kind) for name, amount, kind in taken]
    if else_in_use:
        bars.append(Bar("else in use", "relative", -else_in_use, "other"))
    bars += [
        Bar(f"deduction: {printable(name)}", "relative", -amount, "other") for name, amount in budget.deductions.items()
    ]
    come_to = available - slack - sum(budget.deductions.values())
    rest = come_to if budget.rest_bytes is None else budget.rest_bytes
    if abs(rest - come_to) > ROUNDING:
        bars.append(Bar("SGLang's own result differs", "relative", rest - come_to, "other"))
    elif rest != come_to:
        bars.append(Bar("rounding", "relative", rest - come_to, "other"))
    return [*bars, Bar("rest", "total", rest, "sum"), *_cache(worker, rest)]


def _slack_name(budget: Budget) -> str:
    if floor_binds(budget) or budget.mem_fraction_static is None:
        return "slack"
    return f"slack: 1 - {fraction(budget.mem_fraction_static)} of it"


def _weights(process: Process, worker: Worker) -> list[tuple[str, int, str]]:
    """Return the weights that were loaded when this budget was made: its own, and the other workers'."""
    found = []
    began = _began(process, worker)
    for one in process.workers:
        name = "weights" if one.worker != "draft" else "draft weights"
        if one.draft_index is not None and one.worker == "draft":
            name = f"{name} {one.draft_index}"
        loads = [
            place
            for place, step in enumerate(process.steps)
            if step.phase == "weights.load" and (step.worker, step.draft_index) == (one.worker, one.draft_index)
        ]
        before = began is None or not loads or loads[0] < began
        if one.weights_bytes is not None and before:
            found.append((name, one.weights_bytes, "weights_draft" if one.worker == "draft" else "weights_target"))
    return found


def _began(process: Process, worker: Worker) -> int | None:
    """Return the place of the step that a budget was made in."""
    wanted = None if worker.budget is None else worker.budget.step
    return next((place for place, step in enumerate(process.steps) if step.id == wanted), None)


def _cache(worker: Worker, rest: int) -> list[Bar]:
    """Return what the KV cache takes of the rest, and what is left of that."""
    if worker.kv is None or worker.kv.bytes is None or rest <= 0:
        return []
    return [
        Bar("KV cache", "relative", -worker.kv.bytes, "kv_pool"),
        Bar("left of the budget", "total", rest - worker.kv.bytes, "sum"),
    ]
