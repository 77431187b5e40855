"""A process of a run while its timeline is made: its identity, its steps, and whether it still runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from sglang_probe.collect.clock import Clock, boot_of
from sglang_probe.collect.processes import ProcessEvents, sortable
from sglang_probe.timeline.identity import Identity
from sglang_probe.timeline.model import Step
from sglang_probe.timeline.spans import Draft


class Actor(msgspec.Struct, eq=False):
    """One process. `drafts` change state once, when the whole run is known."""

    process: ProcessEvents
    identity: Identity
    label: str | None
    drafts: list[Draft]
    alive: bool | None
    pid_namespace: str | None = None

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return self.label or f"{self.identity.role} (pid {self.process.key.pid})"

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
        return clock.at(self.boot, max(record.mono_ns for record in self.process.records))

    def unfinished(self) -> list[Draft]:
        """Return the steps that were running when it last wrote, outermost first.

        A step inside a finished one has ended too: its line is lost, and it says nothing about how the process ended.
        """
        has_ended = dict.fromkeys((draft.step.id for draft in self.drafts if draft.closed_seq is not None), True)
        parents = {draft.step.id: draft.step.parent for draft in self.drafts}
        for step in parents:
            chain: dict[str, None] = {}
            current: str | None = step
            while current in parents and current not in has_ended and current not in chain:
                chain[current] = None
                current = parents[current]
            has_ended.update(dict.fromkeys(chain, current is not None and has_ended.get(current, False)))
        return [draft for draft in self.drafts if not has_ended[draft.step.id]]


def ancestors(step: Step, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the ids of the steps around one, innermost first; a circle ends where it closes."""
    seen: set[str] = {step.id}
    current = step.parent
    while current is not None and current in parents and current not in seen:
        yield current
        seen.add(current)
        current = parents[current]
