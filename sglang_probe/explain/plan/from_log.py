"""A run that was read from a log, as plans look at it: set to the tokens that SGLang got, or off by its precision.

Tokens are printed exactly, memory to two decimals. Where memory alone decided the tokens, the bytes of a token and what
was available are therefore known better than they are printed:
    token = (available - pre-load x (1 - fraction) - deductions) / tokens, a whole number near the printed one
    available = tokens x token + pre-load x (1 - fraction) + deductions
Worked example: 134.03 - 138.28 x 0.091 = 121.4466 GiB, +- 0.0055, over 3,979,547 tokens is 32,768.1 +- 1.5 B: 32,768.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from sglang_probe.timeline.arithmetic import estimate_of, token_bytes
from sglang_probe.timeline.model import Budget, Kv, Process, Run, Step, Worker


class Shift(NamedTuple):
    """By which part of its precision each printed figure is taken off: -1, 0 or 1."""

    pre_load: int = 0
    available: int = 0
    token: int = 0
    weights: int = 0
    free: int = 0
    graphs: int = 0


NOWHERE = Shift()
ENDS: tuple[tuple[Shift, Shift], ...] = tuple(
    (NOWHERE._replace(**{name: -1}), NOWHERE._replace(**{name: 1})) for name in Shift._fields
)
"""Each figure at both ends of what it may be."""


def settled(run: Run, shift: Shift = NOWHERE) -> Run:
    """Return a run read from a log with its figures shifted, and set to its own tokens; any other run as it is."""
    if run.source != "log":
        return run
    processes = tuple(_process(process, shift, _page(run)) for process in run.processes)
    return msgspec.structs.replace(run, processes=processes)


def _page(run: Run) -> int:
    page = (run.provenance.effective or {}).get("page_size")
    return page if isinstance(page, int) and not isinstance(page, bool) and 0 < page < 1 << 20 else 1


def _process(process: Process, shift: Shift, page: int) -> Process:
    late = _late(process)
    return msgspec.structs.replace(
        process,
        workers=tuple(_worker(worker, shift, page, late) for worker in process.workers),
        steps=tuple(_step(step, shift) for step in process.steps),
    )


def _late(process: Process) -> int | None:
    """Return by how much SGLang's pre-load memory may be more than what is printed before the weights: what lies
    between the two is a late part of the communication, taken for no more than all that `dist.init` is printed to have
    taken; None where that is not printed.

    Recorded: 139.13 GiB printed, 139.194 SGLang's own, 0.09 taken by `dist.init`. Near a fraction of 1 the tokens leave
    far more open: over 1 - 0.9965 a hundredth of a GiB is 2.9.
    """
    taken = [step for step in process.steps if step.phase == "dist.init" and step.cost_bytes is not None]
    return sum((step.cost_bytes or 0) + (step.precision_bytes or 0) for step in taken) if taken else None


def _step(step: Step, shift: Shift) -> Step:
    off = step.precision_bytes or 0
    cost, free = step.cost_bytes, step.free_bytes
    if step.phase == "graph.capture" and cost is not None:
        cost = max(cost + shift.graphs * off, 0)
    if step.phase in {"graph.capture", "scheduler.init"} and free is not None:
        free += shift.free * off
    return msgspec.structs.replace(step, cost_bytes=cost, free_bytes=free)


def _worker(worker: Worker, shift: Shift, page: int, late: int | None) -> Worker:
    weights = worker.weights_bytes
    if weights is not None:
        weights += shift.weights * (worker.weights_precision_bytes or 0)
    moved = msgspec.structs.replace(worker, weights_bytes=weights)
    if worker.worker == "draft" or worker.budget is None:
        return moved
    budget = _shifted(worker.budget, shift, late)
    moved = msgspec.structs.replace(moved, budget=budget)
    token = _token_of(moved, shift, page)
    if token is not None and moved.kv is not None:
        return _set_to(moved, budget, moved.kv, token, page)
    printed = token_bytes(moved)
    if printed is None or not shift.token:
        return moved
    size = max(printed + shift.token * _token_precision(moved), 1)
    budget = msgspec.structs.replace(budget, bytes_per_token=size)
    kv = None if moved.kv is None else msgspec.structs.replace(moved.kv, bytes_per_token=size)
    return msgspec.structs.replace(moved, budget=budget, kv=kv)


def _shifted(budget: Budget, shift: Shift, late: int | None) -> Budget:
    off = {name: budget.precisions.get(name, 0) for name in ("pre_load_bytes", "available_bytes")}
    # What is printed before the weights is no more than SGLang's own pre-load memory, and may be less.
    told = estimate_of(budget)
    up = off["pre_load_bytes"]
    if told is not None:
        up = max(told if late is None else min(told, late + up), up)
    pre = round(up if shift.pre_load > 0 else shift.pre_load * off["pre_load_bytes"])
    available = round(shift.available * off["available_bytes"])
    return msgspec.structs.replace(
        budget,
        pre_load_bytes=_plus(budget.pre_load_bytes, pre),
        pre_load_local_bytes=_plus(budget.pre_load_local_bytes, pre),
        available_bytes=_plus(budget.available_bytes, available),
        available_local_bytes=_plus(budget.available_local_bytes, available),
        slack_bytes=None,
        rest_bytes=None,
    )


def _plus(size: int | None, more: int) -> int | None:
    return None if size is None else size + more


def _token_precision(worker: Worker) -> int:
    said = 0.0 if worker.budget is None else worker.budget.precisions.get("bytes_per_token", 0)
    return math.ceil(said or (0 if worker.kv is None else worker.kv.bytes_per_token_precision or 0))


def _token_of(worker: Worker, shift: Shift, page: int) -> int | None:
    """Return the bytes of a token that the printed ones and the formula agree in; None where memory did not decide the
    tokens, a term is unknown, or no whole number fits both. With `shift` the least or the largest that fits."""
    budget, kv, printed = worker.budget, worker.kv, token_bytes(worker)
    if budget is None or kv is None or printed is None or not kv.tokens or kv.limited_by != "memory":
        return None
    rest, off = _rest(budget), budget.precisions
    fraction = budget.mem_fraction_static
    if rest is None or fraction is None or rest <= 0:
        return None
    open_ = off.get("available_bytes", 0) + off.get("pre_load_bytes", 0) * abs(1 - fraction)
    spread = _token_precision(worker)
    least = max(printed - spread, math.ceil((rest - open_) / (kv.tokens + page)), 1)
    most = min(printed + spread, math.floor((rest + open_) / kv.tokens))
    if least > most:
        return None
    nearest = min(max(round(rest / (kv.tokens + page / 2)), least), most)
    return {-1: least, 0: nearest, 1: most}[shift.token]


def _rest(budget: Budget) -> int | None:
    available, pre_load, fraction = budget.available_bytes, budget.pre_load_bytes, budget.mem_fraction_static
    if available is None or pre_load is None or fraction is None or not 0 < fraction < 1:
        return None
    return available - round(pre_load * (1 - fraction)) - sum(budget.deductions.values())


def _set_to(worker: Worker, budget: Budget, kv: Kv, token: int, page: int) -> Worker:
    """Return the worker with what was available such that the formula gives its tokens, in the middle of a page."""
    more = (kv.tokens or 0) * token + page * token // 2 - (_rest(budget) or 0)
    return msgspec.structs.replace(
        worker,
        budget=msgspec.structs.replace(
            budget,
            available_bytes=_plus(budget.available_bytes, more),
            available_local_bytes=_plus(budget.available_local_bytes, more),
            bytes_per_token=token,
        ),
        kv=msgspec.structs.replace(kv, bytes_per_token=token),
    )
