"""From the idle card to the pre-load memory, and what the custom all-reduce costs in tokens.

Sums of `self_delta_bytes` inside the distributed init, so that the way closes to the byte whatever was not hooked.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_probe.collect.records import Reading
from sglang_probe.timeline.arithmetic import floor_binds, less, token_bytes
from sglang_probe.timeline.ledger_others import has_context
from sglang_probe.timeline.model import Ledger, PreLoad, Step, Worker

NO_IDLE = "nothing was read before this process had a CUDA context"


def pre_load_of(steps: Sequence[Step], workers: Sequence[Worker], device_kind: str | None) -> PreLoad | None:
    """Return the way of a rank's target; None where its distributed init did not end, where free memory is unknown, and
    on a CPU, which has no context to begin with."""
    if device_kind == "cpu":
        return None
    init = next((step for step in steps if step.phase == "dist.init" and step.state == "ok"), None)
    if init is None or init.after is None or init.free_bytes is None or not has_context(init.after):
        return None
    inside = _inside(steps, init)
    idle = _last_without_context(steps, init)
    context = next((one.before for one in inside if one.before is not None and has_context(one.before)), None)
    idle_free = None if idle is None else idle.nvml_free_bytes
    taken = {
        "context_bytes": less(idle_free, None if context is None else context.device_free_bytes),
        "world_group_bytes": _cost([one for one in inside if _is_world(one)], "dist.communicator"),
        "communicators_bytes": _cost([one for one in inside if not _is_world(one)], "dist.communicator"),
        "custom_allreduce_bytes": _cost(inside, "allreduce.buffers"),
    }
    other = None
    if idle_free is not None and taken["context_bytes"] is not None:
        other = idle_free - init.free_bytes - sum(cost for cost in taken.values() if cost is not None)
    tokens, why = _tokens(taken["custom_allreduce_bytes"], workers)
    ledger = init.ledger or Ledger()
    if idle_free is None:  # then it is what NVML says of this process, as far as it can be told
        taken["context_bytes"] = ledger.cuda_context
    driver = ledger.driver_reserved
    total = init.ledger_total_bytes if init.ledger_total_source == "nvml_total_bytes" else None
    return PreLoad(
        nvml_total_bytes=total,
        driver_reserved_bytes=driver,
        unlisted_bytes=None if total is None or driver is None or idle_free is None else total - driver - idle_free,
        idle_free_bytes=idle_free,
        idle_free_reason=NO_IDLE if idle_free is None else None,
        **taken,
        other_bytes=other,
        pre_load_bytes=init.free_bytes,
        not_separable=_why_not_apart(init),
        custom_allreduce_tokens=tokens,
        custom_allreduce_tokens_reason=why,
    )


def _inside(steps: Sequence[Step], outer: Step) -> list[Step]:
    """Return the steps inside one, in the order in which they began."""
    known = {outer.id}
    found = []
    for step in steps:
        if step.parent in known and step.id not in known:
            known.add(step.id)
            found.append(step)
    return found


def _last_without_context(steps: Sequence[Step], init: Step) -> Reading | None:
    """Return the last reading before the process had a context."""
    found = None
    for step in steps:
        if step.before is not None:
            if has_context(step.before):
                return found
            found = step.before
        if step is init:
            return found
    return found


def _is_world(step: Step) -> bool:
    group = step.attributes.get("group")
    return isinstance(group, str) and group.split(":")[0] == "world"


def _cost(steps: Sequence[Step], role: str) -> int | None:
    """Return what steps of a role took by themselves; None where there is no such step, or one is unknown."""
    shares = [step.self_delta_bytes for step in steps if step.phase == role]
    if not shares or None in shares:
        return None
    return -sum(share for share in shares if share is not None)


def _why_not_apart(init: Step) -> str | None:
    rows = ("cuda_context", "communicator", "custom_allreduce")
    return next((init.ledger_reasons[row] for row in rows if row in init.ledger_reasons), None)


def _tokens(cost: int | None, workers: Sequence[Worker]) -> tuple[float | None, str | None]:
    """Return the KV tokens that a cost in pre-load memory takes, or why they cannot be told.

    Pre-load and available both fall by the cost c; rest = available - pre-load x (1 - f) falls by c - c x (1 - f): by
    c x f, or by all of c where a floor holds the slack. Worked example: 34 MiB x 0.909 / 32768 B = 989.0 tokens.
    """
    target = next((worker for worker in workers if worker.worker == "target"), None)
    budget = None if target is None else target.budget
    if cost is None:
        return None, None
    if target is None or budget is None or budget.mem_fraction_static is None:
        return None, "no budget was recorded"
    token = token_bytes(target)
    if not token:
        return None, "the bytes of a token are unknown"
    return cost * (1.0 if floor_binds(budget) else budget.mem_fraction_static) / token, None
