"""The models of a process: its target, and its drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_probe.timeline.budget import budget_of
from sglang_probe.timeline.model import Rank, Sample, Step, Worker
from sglang_probe.timeline.pools import kv_of


def workers_of(
    steps: Sequence[Step], samples: Sequence[Sample], rank: Rank | None, given: dict[str, Any] | None
) -> tuple[Worker, ...]:
    """Return the workers that a process's events speak of, the target first. `given` are the launcher's flags."""
    seen = {(step.worker, step.draft_index) for step in steps if step.worker is not None}
    seen |= {(sample.worker, sample.draft_index) for sample in samples if sample.worker is not None}
    ordered = sorted(seen, key=lambda key: (key[0] != "target", key[0] or "", -1 if key[1] is None else key[1]))
    stages = None if rank is None or rank.pp is None else rank.pp.size
    return tuple(
        Worker(
            worker=worker or "",
            draft_index=index,
            **_weights(steps, worker, index),
            budget=budget_of(steps, worker or "", index, given),
            kv=kv_of(steps, samples, worker or "", index, stages),
        )
        for worker, index in ordered
    )


def _weights(steps: Sequence[Step], worker: str | None, index: int | None) -> dict[str, Any]:
    """Return what the weights cost, over every load of this worker."""
    loads = [step for step in steps if (step.phase, step.worker, step.draft_index) == ("weights.load", worker, index)]
    loads = [step for step in loads if step.attributes.get("part") != "lora"]
    own = {load.id for load in loads}
    outer = [step for step in loads if step.parent not in own]
    if not outer:
        return {"weights_reason": "weights.load never began"}
    unfinished = next((step for step in outer if step.state != "ok"), None)
    if unfinished is not None:
        return {"weights_reason": f"weights.load did not end well ({unfinished.state})"}
    costs = [step.cost_bytes for step in outer]
    torch = [_torch_cost(step) for step in outer]
    unread = next((step.null_reason for step in outer if step.cost_bytes is None), None)
    return {
        "weights_bytes": sum(cost for cost in costs if cost is not None) if None not in costs else None,
        "weights_torch_bytes": sum(cost for cost in torch if cost is not None) if None not in torch else None,
        "weights_reason": unread,
    }


def _torch_cost(step: Step) -> int | None:
    before = None if step.before is None else step.before.torch_allocated_bytes
    after = None if step.after is None else step.after.torch_allocated_bytes
    return None if before is None or after is None else after - before
