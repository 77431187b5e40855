"""A process of a run while its timeline is made: its identity, its steps, and whether it still runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from sglang_probe.collect.clock import Clock, boot_of
from sglang_probe.collect.launch import Member
from sglang_probe.collect.processes import ProcessEvents, sortable
from sglang_probe.collect.records import Record, attributes_of
from sglang_probe.events import names
from sglang_probe.timeline.health import Refusals, refusals_of
from sglang_probe.timeline.identity import Identity, identity_of
from sglang_probe.timeline.liveness import ProcessId
from sglang_probe.timeline.model import Sample, Step
from sglang_probe.timeline.provenance import Account, account_of
from sglang_probe.timeline.spans import Draft, drafts_of, samples_of
from sglang_probe.timeline.values import text

Alive = Callable[[ProcessId], bool | None]

_mono: Final = attrgetter("mono_ns")


class Actor(msgspec.Struct, eq=False):
    """One process, and all that its records say: those of 10,000 are far too many to come back to."""

    process: ProcessEvents
    identity: Identity
    label: str | None
    name: str
    """How it is called in a sentence."""
    drafts: list[Draft]
    """They change state once, when the whole run is known."""
    samples: tuple[Sample, ...]
    account: Account
    refusals: Refusals
    ends: tuple[Record, Record]
    """What it wrote first and last, by its clock."""
    alive: bool | None
    pid_namespace: str | None

    @property
    def boot(self) -> str:
        """The boot whose monotonic clock it used."""
        return boot_of(self.process)

    @property
    def order(self) -> tuple[str, str, int, int]:
        """Orders actors where time does not."""
        return sortable(self.process.key)

    def last_ns(self, clock: Clock) -> int:
        """Return when it last wrote."""
        return clock.at(self.boot, self.ends[1].mono_ns)

    def unfinished(self) -> list[Draft]:
        """Return the steps that were running when it last wrote, outermost first.

        A step inside a finished one has ended too: its line is lost, and it says nothing about how the process ended.
        """
        has_ended = {draft.step.id: True for draft in self.drafts if draft.closed_seq is not None}
        if len(has_ended) == len(self.drafts):
            return []
        parents = {draft.step.id: draft.step.parent for draft in self.drafts}
        for step in parents:
            chain: dict[str, None] = {}
            current: str | None = step
            while current in parents and current not in has_ended and current not in chain:
                chain[current] = None
                current = parents[current]
            has_ended.update(dict.fromkeys(chain, current is not None and has_ended.get(current, False)))
        return [draft for draft in self.drafts if not has_ended[draft.step.id]]


def actor_of(member: Member, label: str | None, alive: Alive) -> Actor:
    """Return what a process says of itself. `alive` says whether it still runs."""
    process, identity = member.process, identity_of(member)
    name = label or f"{identity.role} (pid {process.key.pid})"
    drafts = drafts_of(process.records)
    process_id = _id_of(process)
    return Actor(
        process=process,
        identity=identity,
        label=label,
        name=name,
        drafts=drafts,
        samples=samples_of(process.records),
        account=account_of(process.records, name, is_rank=identity.is_rank),
        refusals=refusals_of(process.records, [draft.step for draft in drafts]),
        ends=(min(process.records, key=_mono), max(process.records, key=_mono)),
        alive=alive(process_id),
        pid_namespace=process_id.pid_namespace,
    )


def _id_of(process: ProcessEvents) -> ProcessId:
    start = next((record for record in process.records if record.event == names.PROCESS_START), None)
    return ProcessId(
        host=process.key.host,
        boot_id=process.boot_id,
        pid=process.key.pid,
        start_ticks=process.key.start_ticks,
        pid_namespace=None if start is None else text(attributes_of(start), "pid_namespace"),
    )


def ancestors(step: Step, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the ids of the steps around one, innermost first; a circle ends where it closes."""
    seen: set[str] = {step.id}
    current = step.parent
    while current is not None and current in parents and current not in seen:
        yield current
        seen.add(current)
        current = parents[current]
