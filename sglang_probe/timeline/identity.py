"""Who a process is, told by all of its events: what a later one knows is filled into the earlier ones."""

from __future__ import annotations

import msgspec

from sglang_probe.collect.launch import Member
from sglang_probe.collect.records import NULL, Part, Record
from sglang_probe.collect.worlds import Membership
from sglang_probe.timeline.model import Device, Rank

_device_of = Part(Device)


class Identity(msgspec.Struct, frozen=True):
    """What is known of a process, back-filled."""

    role: str
    parent: int | None
    rank: Rank | None
    device: Device | None
    world: Membership | None
    is_fork: bool = False
    """Forked by a rank: how it ends says nothing about the run."""

    @property
    def is_rank(self) -> bool:
        """True for a process that holds a model: it knows its rank or calls itself a scheduler."""
        return self.rank is not None or self.world is not None or self.role == "scheduler"


def identity_of(member: Member) -> Identity:
    """Return who a process is."""
    records = member.process.records
    return Identity(
        role="other" if member.is_fork else _role(records),
        parent=next((record.proc.parent for record in records if record.proc is not None), None),
        rank=member.rank,
        device=_device(records),
        world=member.world,
        is_fork=member.is_fork,
    )


def _role(records: list[Record]) -> str:
    for record in reversed(records):
        if record.proc is not None and record.proc.role != "other":
            return record.proc.role
    return "other"


def _device(records: list[Record]) -> Device | None:
    """Return the device as said last, completed by what was said before."""
    known: Device | None = None
    last = NULL
    for record in reversed(records):
        raw = record.device
        if raw in (last, NULL) or not raw:
            continue
        last = raw
        said = _device_of(raw)
        if known is None or said is None:
            known = known or said
            continue
        known = Device(
            index=said.index if known.index is None else known.index,
            uuid=said.uuid if known.uuid is None else known.uuid,
            name=said.name if known.name is None else known.name,
            kind=said.kind if known.kind is None else known.kind,
        )
    return known
