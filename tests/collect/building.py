"""Builds a process's event stream, valid against the contract.

Its device has `total` bytes; every step takes its cost off what is free, so that the figures add up by themselves.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from sglang_probe.events import names
from sglang_probe.events.envelope import DELTA_KEYS, READING_KEYS

GIB = names.GIB
SECOND = 1_000_000_000
EPOCH = 1_795_977_000 * SECOND  # 2026-11-29, at monotonic zero of a boot without skew
MILLISECOND = 1_000_000


@dataclass
class Host:
    """A machine in one boot: a monotonic clock, and a wall clock that may be ahead of the others'."""

    name: str = "node-a"
    boot_id: str = "boot-a"
    ahead_ns: int = 0
    now: int = 100 * SECOND

    def tick(self, ns: int = MILLISECOND) -> int:
        """Let time pass and return it (monotonic)."""
        self.now += ns
        return self.now

    @property
    def ticks(self) -> int:
        """Return now in clock ticks, as the start time of a process."""
        return self.now // (10 * MILLISECOND)

    def wall(self, mono: int) -> str:
        """Return the wall time of a moment, as an event writes it."""
        seconds, ns = divmod(EPOCH + mono + self.ahead_ns, SECOND)
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") + f".{ns:09d}Z"


class Raised(Exception):
    """An exception on its way through spans that are being built."""

    ids = itertools.count(1)

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.id = f"e{next(self.ids)}"
        self.kind = kind
        self.told = False


@dataclass
class Writer:
    """One process and the events it has written."""

    host: Host
    pid: int
    run_id: str = "20261129T184500Z-3fa9c1"
    start_ticks: int | None = 1000
    parent: int = 1
    role: str = "other"
    rank: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    total: int = 96 * GIB
    free: int | None = 96 * GIB
    torch: int = 0
    worker: str | None = None
    draft_index: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def emit(self, event: str, **fields: Any) -> dict[str, Any]:
        """Write one event, of any name."""
        mono = self.host.tick()
        written: dict[str, Any] = {
            "schema": names.SCHEMA_VERSION,
            "ts": self.host.wall(mono),
            "mono_ns": mono,
            "level": "info",
            "event": event,
            "role": None,
            "kind": None,
            "message": event,
            "run_id": self.run_id,
            "seq": len(self.events),
            "host": self.host.name,
            "boot_id": self.host.boot_id,
            "pid": self.pid,
            "proc": {"start_ticks": self.start_ticks, "parent": self.parent, "role": self.role},
            "rank": self.rank,
            "worker": None,
            "draft_index": None,
            "device": self.device,
            "span": None,
            "before": None,
            "after": None,
            "delta": None,
            "duration_ns": None,
            "outcome": None,
            "exception": None,
            "attributes": {},
            "degraded": [],
        }
        self.events.append(written | fields)
        return self.events[-1]

    def reading(self) -> dict[str, Any]:
        """Return what the device says now."""
        known = {
            "device_total_bytes": self.total if self.free is not None else None,
            "device_free_bytes": self.free,
            "torch_allocated_bytes": self.torch,
            "torch_reserved_bytes": self.torch,
        }
        return dict.fromkeys(READING_KEYS) | known

    def start(self, **attributes: Any) -> None:
        """Write the first line of a file."""
        versions = {"python": "3.12.1", "sglang": "0.5.14", "torch": "2.11.0", "driver": None, "nccl": None}
        known = {
            "executable": "python",
            "prefix": "env",
            "argv": ["python", "-m", "sglang.launch_server"],
            "versions": versions,
            "environment": {},
            "pid_namespace": "pid:[1]",
        }
        self.emit(names.PROCESS_START, attributes=known | attributes)

    def target(self, role: str | None, state: str = "applied", name: str | None = None, **more: Any) -> None:
        """Write what became of a row of the target table."""
        said = {"target": name or f"sglang.srt:{role}", "role": role, "state": state, "reason": None}
        self.emit(names.TARGET, attributes={**said, "fingerprint": "0" * 16, **more})

    def _call(self, role: str, kind: str, span: dict[str, Any], **fields: Any) -> None:
        level = "error" if kind == "error" else "info"
        self.emit(
            names.memory_event(role, kind),
            role=role,
            kind=kind,
            level=level,
            span=span,
            worker=self.worker,
            draft_index=self.draft_index,
            **fields,
        )

    def begin(self, role: str, **attributes: Any) -> tuple[str, dict[str, Any], dict[str, Any], int]:
        """Open a span and leave it open; `step` closes it too."""
        span = {"id": f"{next(self.ids):x}", "parent": self.stack[-1] if self.stack else None}
        before = self.reading()
        self._call(role, "begin", span, before=before, attributes=attributes)
        self.stack.append(str(span["id"]))
        return role, span, before, self.host.now

    @contextmanager
    def step(
        self, role: str, cost: int = 0, *, torch: int = 0, lasts: int = MILLISECOND, **attributes: Any
    ) -> Iterator[dict[str, Any]]:
        """Write a span around what happens inside; what is put into the yielded dict is said at the end."""
        at_once = {key: attributes[key] for key in ("pool", "graph") if key in attributes}
        _, span, before, began = self.begin(role, **at_once)
        said = dict(attributes)
        raised: Raised | None = None
        try:
            yield said
        except Raised as error:
            raised = error
        self.host.tick(lasts)
        if self.free is not None:
            self.free -= cost
        self.torch += torch
        self._close(role, span, before, began, said, raised)
        self.stack.pop()
        if raised is not None:
            raise raised

    def _close(
        self,
        role: str,
        span: dict[str, Any],
        before: dict[str, Any],
        began: int,
        said: dict[str, Any],
        raised: Raised | None,
    ) -> None:
        after = self.reading()
        delta = {
            key: None if before[key] is None or after[key] is None else after[key] - before[key] for key in DELTA_KEYS
        }
        self._call(
            role,
            "end" if raised is None else "error",
            span,
            before=before,
            after=after,
            delta=delta,
            duration_ns=self.host.now - began,
            outcome="ok" if raised is None else "error",
            exception=None if raised is None else _described(raised),
            attributes=said,
        )

    def sample(self, role: str, **attributes: Any) -> None:
        """Write a reading of the moment."""
        span = {"id": f"{next(self.ids):x}", "parent": self.stack[-1] if self.stack else None}
        self._call(role, "sample", span, after=self.reading(), attributes=attributes)

    @property
    def file_name(self) -> str:
        """How the agent names this process's file."""
        return f"{self.host.name}.{self.pid}.{self.start_ticks}.jsonl"

    def lines(self) -> list[bytes]:
        """Return the lines of its file, with their newlines."""
        return [line_of(event) for event in self.events]


def line_of(event: dict[str, Any]) -> bytes:
    """Return an event as the agent writes it."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _described(raised: Raised) -> dict[str, Any]:
    first, raised.told = not raised.told, True
    return {
        "id": raised.id,
        "type": raised.kind,
        "message": str(raised) if first else None,
        "stacktrace": "Traceback" if first else None,
        "raised_in": "sglang.srt:raises:1",
    }
