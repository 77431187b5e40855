"""A rank on a card that other processes share: what it holds is put in, what its readings say follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sglang_probe.events.envelope import READING_KEYS
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Ledger, Process, Step
from tests.collect.building import Host, Writer
from tests.collect.starting import rank_of
from tests.timeline.making import Alive, run_of, unknowable

MIB = 1 << 20
CARD = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "kind": "cuda"}
Change = Callable[[dict[str, Any]], dict[str, Any]]


def as_read(reading: dict[str, Any]) -> dict[str, Any]:
    """Change nothing."""
    return reading


def without(*starts: str) -> Change:
    """Return a change that leaves out what begins with one of these."""
    return lambda reading: {key: None if key.startswith(starts) else value for key, value in reading.items()}


@dataclass
class Card(Writer):
    """A rank and its card, in MiB. `change` is what the machine makes of a reading before it is written."""

    device: dict[str, Any] | None = field(default_factory=lambda: dict(CARD))
    size: int = 1000
    """As NVML has it."""
    driver: int = 10
    unlisted: int = 3
    """In use by no process."""
    context: int = 0
    raw: int = 0
    """This process's, beside its context and torch."""
    allocated: int = 0
    reserved: int = 0
    others: list[dict[str, Any]] = field(default_factory=list)
    """As NVML lists them, but for bytes: MiB."""
    lists: bool = True
    listed_pid: int | None = None
    """This process's pid as NVML has it: by default the same."""
    listed_less: int = 0
    """What NVML's figure for this process leaves out."""
    change: Change = as_read

    @property
    def own(self) -> int:
        """Everything of this process on the card."""
        return self.context + self.raw + self.reserved

    def reading(self) -> dict[str, Any]:
        """Return what the card, torch and NVML say now."""
        used = self.unlisted + self.own + sum(other["bytes"] for other in self.others)
        known = {
            "nvml_total_bytes": self.size,
            "nvml_reserved_bytes": self.driver,
            "nvml_used_bytes": used,
            "nvml_free_bytes": self.size - self.driver - used,
        }
        if self.context:
            known |= {
                "device_total_bytes": self.size - self.driver,
                "device_free_bytes": self.size - self.driver - used,
                "torch_allocated_bytes": self.allocated,
                "torch_reserved_bytes": self.reserved,
            }
        reading: dict[str, Any] = dict.fromkeys(READING_KEYS) | {key: value * MIB for key, value in known.items()}
        if self.lists:
            reading["nvml_processes"] = self._listed()
        return self.change(reading)

    def _listed(self) -> list[dict[str, Any]]:
        listed = [{"start_ticks": 1, "name": "python", **other, "bytes": other["bytes"] * MIB} for other in self.others]
        if self.context:
            mine = {"pid": self.listed_pid or self.pid, "bytes": (self.own - self.listed_less) * MIB}
            listed.append({"start_ticks": self.start_ticks, "name": "python", **mine})
        return listed

    def begin(self, role: str, **attributes: Any) -> tuple[str, dict[str, Any], dict[str, Any], int]:
        """Open a span; process lists are read at ends alone."""
        lists, self.lists = self.lists, False
        try:
            return super().begin(role, **attributes)
        finally:
            self.lists = lists

    def take(self, *, torch: int = 0, reserved: int | None = None, raw: int = 0) -> None:
        """Take memory, in MiB: `torch` allocates, and reserves the same unless told otherwise."""
        self.allocated += torch
        self.reserved += torch if reserved is None else reserved
        self.raw += raw

    @contextmanager
    def collective(self, role: str, **attributes: Any) -> Iterator[None]:
        """Write a step inside a collective: no process list is read at its end."""
        lists = self.lists
        with self.step(role, **attributes):
            yield
            self.lists = False
        self.lists = lists

    def set_up(self, context: int = 50) -> None:
        """Let the distributed init make the context and nothing else."""
        self.worker = "target"
        with self.collective("dist.init"):
            self.context = context
            with self.collective("dist.communicator", communicator="ProcessGroup", group="world"):
                pass


def card(**known: Any) -> Card:
    """Return the only rank of a run."""
    return Card(Host(), 4200, role="scheduler", rank=rank_of(0, 1), **known)


def process_of(card: Card, *others: Writer, alive: Alive = unknowable) -> Process:
    """Return the process that a card's rank makes."""
    return next(one for one in run_of([card, *others], alive).processes if one.pid == card.pid)


def last(card: Card, *others: Writer, phase: str | None = None) -> Step:
    """Return the step of a phase that began last, or the last of all."""
    steps = process_of(card, *others).steps
    return next(step for step in reversed(steps) if phase in (None, step.phase))


def mib(step: Step) -> dict[str, float | None]:
    """Return the rows of a ledger in MiB, without those that hold nothing."""
    ledger = rows(step)
    return {key: None if value is None else value / MIB for key, value in ledger.items() if value != 0}


def rows(step: Step) -> dict[str, int | None]:
    """Return the rows of a ledger; every one is checked to sum to its total."""
    assert isinstance(step.ledger, Ledger)
    found: dict[str, int | None] = {key: getattr(step.ledger, key) for key in KEYS}
    assert step.ledger_total_bytes == sum(value for value in found.values() if value is not None)
    assert {key for key, value in found.items() if value is None} == set(step.ledger_reasons)
    return found
