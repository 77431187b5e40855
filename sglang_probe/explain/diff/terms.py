"""The terms of the tightest rank's budget, with what its pre-load memory and its weights are made of."""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.explain.diff.precision import of_term
from sglang_probe.explain.diff.sides import reached, token_of, tokens_of
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.timeline.arithmetic import floor_binds, less, plain_slack
from sglang_probe.timeline.model import PreLoad, Process, Run, Step
from sglang_probe.timeline.processes import ranks_of

MOST: Final = 1000.0
"""A fraction beyond it is none of SGLang's."""
LATE: Final = "others_late"
"""What others took after the pre-load memory was read."""
BESIDE: Final = 512 << 20
SHARE_BESIDE: Final = 0.05
"""Bytes, and share of what torch holds, that loading weights may cost beside: kernels, workspaces of libraries."""


class Terms(NamedTuple):
    """rest = pre-load x fraction - weights - draft - deductions - floor + own term.

    The same as available - pre-load x (1 - fraction) - deductions, with available = pre-load - what was taken since. In
    GiB, of the story: 93.999 x 0.55 - 72.302 = -20.603.
    """

    label: str
    pre_load: int
    fraction: float
    rest: int
    taken: dict[str, int | None]
    """What lies between pre-load x fraction and the rest, by part; None where it is unknown."""
    way: dict[str, int | None]
    """What the pre-load memory is what is left of: the card less each of these."""
    token: int | None
    tokens: int | None
    precisions: dict[str, int]
    """How far off pre_load, rest, weights and token may be, of a run read from a log."""


def terms_of(run: Run, *, mixed: bool = False) -> Terms | None:
    """Return the terms of a run's tightest budget; None where one that decides is unknown or no number. `mixed`: events
    are compared with a log."""
    seat = Subject(run).tightest
    if seat is None:
        return None
    budget, token = seat.budget, token_of(seat)
    rest, slack = reached(budget, token), plain_slack(budget)
    if rest is None or slack is None or budget.pre_load_bytes is None or budget.mem_fraction_static is None:
        return None
    if not abs(budget.mem_fraction_static) < MOST:
        return None
    floor = round(budget.slack_bytes - slack) if floor_binds(budget) and budget.slack_bytes is not None else 0
    own = rest - budget.rest_bytes if budget.rest_bytes is not None else 0
    return Terms(
        label=seat.label,
        pre_load=budget.pre_load_bytes,
        fraction=budget.mem_fraction_static,
        rest=rest,
        taken={
            **_weights(seat),
            **{f"deductions.{name}": taken for name, taken in sorted(budget.deductions.items())},
            "slack_floor": floor,
            "own_term": -own,
        },
        way=_way(_least_pre_load(run, seat)),
        token=token,
        tokens=tokens_of(run),
        precisions=_precisions(seat, mixed=mixed),
    )


def _precisions(seat: Seat, *, mixed: bool) -> dict[str, int]:
    pairs = {"pre_load": "pre_load_bytes", "rest": "rest_bytes", "token": "bytes_per_token"}
    found = {name: of_term([seat.worker], term, mixed=mixed) for name, term in pairs.items()}
    found["weights"] = seat.worker.weights_precision_bytes or 0
    return {name: precision for name, precision in found.items() if precision}


def _weights(seat: Seat) -> dict[str, int | None]:
    """Return what the weights took before the target's budget was computed, and what others took meanwhile.

    Worked example, in GiB: loading cost the device 34.250 and torch holds 4.250 of it: 30.000 are others'.
    """
    loads = {part: _loaded(seat, worker) for part, worker in (("weights", "target"), ("weights_draft", "draft"))}
    return {
        **{part: None if load is None else load.cost - load.others for part, load in loads.items()},
        LATE: sum(load.others for load in loads.values() if load is not None),
    }


class _Load(NamedTuple):
    cost: int
    others: int


def _loaded(seat: Seat, worker: str) -> _Load | None:
    """Return what loading a worker's weights cost before the target's budget was computed; 0 where nothing was."""
    before: list[Step] = []
    for step in seat.process.steps:
        if step.id == seat.budget.step:
            break
        before.append(step)
    loads = [step for step in before if step.phase == "weights.load" and (step.worker or "target") == worker]
    inside = {step.id for step in loads}
    outermost = [step for step in loads if step.parent not in inside]
    costs = [step.cost_bytes for step in outermost]
    if None in costs:
        return None
    cost = sum(known for known in costs if known is not None)
    torch = [_of_torch(step) for step in outermost]
    own = None if not torch or None in torch else sum(known for known in torch if known is not None)
    return _Load(cost, 0 if own is None else _not_torchs(cost, own))


def _of_torch(step: Step) -> int | None:
    """Return what torch took of the device in a step: by what it has reserved, where known, else has allocated."""
    if step.before is None or step.after is None:
        return None
    before, after = step.before, step.after
    pairs = (
        (before.torch_reserved_bytes, after.torch_reserved_bytes),
        (before.torch_allocated_bytes, after.torch_allocated_bytes),
    )
    return next((end - start for start, end in pairs if start is not None and end is not None), None)


def _not_torchs(cost: int, own: int) -> int:
    """Return what is not torch's, where that is more than libraries take beside it."""
    left = cost - own
    return left if abs(left) > max(BESIDE, SHARE_BESIDE * abs(own)) else 0


def _least_pre_load(run: Run, seat: Seat) -> Process:
    """Return the rank whose pre-load memory is the minimum that the budget took; the seat's where none is known."""
    known = [rank for rank in ranks_of(run) if rank.pre_load is not None and rank.pre_load.pre_load_bytes is not None]
    return min(known, key=_pre_load, default=seat.process)


def _pre_load(rank: Process) -> int:
    return (rank.pre_load.pre_load_bytes if rank.pre_load is not None else None) or 0


def _way(rank: Process) -> dict[str, int | None]:
    """Return what stands between the card and its pre-load memory: what grows here makes the pre-load memory less."""
    way = rank.pre_load or PreLoad()
    return {
        "card": less(way.driver_reserved_bytes, way.nvml_total_bytes),
        "others": way.unlisted_bytes,
        "context": way.context_bytes,
        "world_group": _or_none_built(way.world_group_bytes, rank, "dist.communicator"),
        "communicators": _or_none_built(way.communicators_bytes, rank, "dist.communicator"),
        "custom_allreduce": _or_none_built(way.custom_allreduce_bytes, rank, "allreduce.buffers"),
    }


def _or_none_built(taken: int | None, rank: Process, phase: str) -> int | None:
    """Return 0 for what was never built: no step of it is there, in a distributed init that ended."""
    if taken is None and rank.pre_load is not None and all(step.phase != phase for step in rank.steps):
        return 0
    return taken
