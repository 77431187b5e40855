"""Time: `mono_ns` orders the processes of one boot, `ts` those of several; `skew` ties the clocks of hosts.

All times are integers in nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Final

import msgspec

from sglang_probe.collect.processes import ProcessEvents
from sglang_probe.collect.records import Record

SECOND: Final = 1_000_000_000
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|\+00:00)", re.ASCII)


def wall_ns(ts: str) -> int | None:
    """Return an event's `ts` as nanoseconds since 1970; None when it is not RFC 3339 in UTC."""
    match = _RFC3339.fullmatch(ts)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(moment.timestamp()) * SECOND + int((match[3] or "").ljust(9, "0"))


def boot_of(process: ProcessEvents) -> str:
    """Return what names the boot whose monotonic clock a process used; its host, where the boot id is unknown."""
    return process.boot_id or f"host {process.key.host}"


class Clock(msgspec.Struct, frozen=True):
    """Puts the events of a run on one scale: wall time of the reference boot."""

    offsets: Mapping[str, int | None]
    """Boot -> wall time at its monotonic zero; None where no event of it has a readable `ts`."""
    skews: Mapping[str, int] = {}
    """Boot -> how far its wall clock is ahead of the reference boot's."""

    def at(self, boot: str, mono_ns: int) -> int:
        """Return when something happened."""
        return mono_ns + (self.offsets.get(boot) or 0) - self.skews.get(boot, 0)


def offsets(processes: Iterable[ProcessEvents]) -> dict[str, int | None]:
    """Return for each boot the wall time at its monotonic zero, from the earliest event that tells."""
    found: dict[str, int | None] = {}
    earliest: dict[str, int] = {}
    for process in processes:
        boot = boot_of(process)
        found.setdefault(boot, None)
        anchor = _anchor(process.records)
        if anchor is not None and (boot not in earliest or anchor < (earliest[boot], found[boot] or 0)):
            earliest[boot], found[boot] = anchor
    return found


def _anchor(records: list[Record]) -> tuple[int, int] | None:
    """Return (mono_ns, wall time at monotonic zero) of the first record with a readable `ts`."""
    for record in records:
        wall = wall_ns(record.ts)
        if wall is not None:
            return record.mono_ns, wall - record.mono_ns
    return None
