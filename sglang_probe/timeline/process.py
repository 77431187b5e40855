"""One process of a run: from what is known of it to its place in the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.ledger import with_ledgers
from sglang_probe.timeline.ledger_others import Own
from sglang_probe.timeline.ledger_preload import pre_load_of
from sglang_probe.timeline.liveness import UNKNOWABLE
from sglang_probe.timeline.model import Device, Process, Step
from sglang_probe.timeline.workers import workers_of
from sglang_probe.timeline.worlds import place_of

PidSpace = tuple[str, str | None]
"""A boot and a pid namespace in it."""
_BEFORE_RANKS = {"launcher": 0, "dp_controller": 1}


def process_of(actor: Actor, given: dict[str, Any] | None, own: Own) -> Process:
    """Return a process with its steps, whose states are settled. `given` are the launcher's flags."""
    process, identity = actor.process, actor.identity
    kind = None if identity.device is None else identity.device.kind
    told = with_ledgers(actor.drafts, actor.samples, own, kind)
    steps = tuple(told.steps)
    workers = workers_of(steps, actor.samples, identity.rank, given)
    return Process(
        host=process.key.host,
        pid=process.key.pid,
        start_ticks=process.key.start_ticks,
        boot_id=process.boot_id,
        parent=identity.parent,
        role=identity.role,
        rank=identity.rank,
        label=actor.label,
        device=_device(identity.device, steps),
        alive=actor.alive,
        alive_reason=UNKNOWABLE if actor.alive is None else None,
        first_ts=process.records[0].ts,
        last_ts=process.records[-1].ts,
        events=len(process.records),
        lost_events=process.lost + actor.refusals.dropped,
        dropped_events=actor.refusals.dropped,
        no_memory_role=actor.refusals.hooked_nothing,
        torn_tail=process.torn_tail,
        steps=steps,
        samples=actor.samples,
        workers=workers,
        pre_load=pre_load_of(steps, workers, kind),
        neighbours=told.neighbours,
        targets=actor.account.targets,
        degraded=actor.refusals.degraded,
    )


def mates_of(actors: Iterable[Actor]) -> dict[PidSpace, dict[int, int | None]]:
    """Return the processes of a run, pid -> start, by where their pids mean the same."""
    found: dict[PidSpace, dict[int, int | None]] = {}
    for actor in actors:
        found.setdefault(_pid_space(actor), {})[actor.process.key.pid] = actor.process.key.start_ticks
    return found


def owner_of(actor: Actor, mates: Mapping[PidSpace, Mapping[int, int | None]]) -> Own:
    """Return by what a process knows itself and its like in NVML's lists."""
    key = actor.process.key
    return Own(key.pid, key.start_ticks, actor.pid_namespace, mates[_pid_space(actor)])


def _pid_space(actor: Actor) -> PidSpace:
    return actor.boot, actor.pid_namespace


def reading_order(actor: Actor) -> tuple[int, int, int]:
    """Return a key that puts the launcher first, then the ranks in their order, then the others."""
    identity = actor.identity
    if not identity.is_rank:
        return _BEFORE_RANKS.get(identity.role, 3), 0, 0
    dp = None if identity.rank is None else identity.rank.dp
    place = place_of(identity.rank)
    return 2, -1 if dp is None else dp.rank, 1 << 62 if place is None else place[0]


def _device(device: Device | None, steps: tuple[Step, ...]) -> Device | None:
    """Complete a device with its total, as the readings give it."""
    readings = (reading for step in steps for reading in (step.after, step.before) if reading is not None)
    total = next((one.device_total_bytes for one in readings if one.device_total_bytes is not None), None)
    if device is None or total is None:
        return device
    return msgspec.structs.replace(device, total_bytes=total)
