"""What the clock of a log shows while it is watched."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Final

from sglang_probe.report.series import NS, nanoseconds
from sglang_probe.timeline.model import Run

_WRITTEN_NS: Final = 60 * NS
"""A line is written at most so long after its stamp."""
_QUARTER_NS: Final = 900 * NS
"""Zones differ by multiples of a quarter of an hour."""


class LogClock:
    """What the clock of a log shows: it names no zone, and a copy of it was not written when it was printed.

    The age of a log that was not seen to grow is no time that passed: it stands at its last stamp, and what was watched
    since is added. It never goes back.
    """

    def __init__(self) -> None:
        self._behind: timedelta = timedelta()
        self._shown: datetime | None = None
        self._first: tuple[int, datetime, datetime] | None = None
        """Of the first reading: when the file was written, its last stamp, and when it was read."""
        self._grows = False

    def set(self, run: Run, written_ns: int | None) -> None:
        """Take what a reading says."""
        last = nanoseconds(run.local_ended)
        if last is None or written_ns is None:
            return
        apart = written_ns - last
        zone = round(apart / _QUARTER_NS) * _QUARTER_NS
        behind = zone if abs(apart - zone) < _WRITTEN_NS else apart
        self._behind = timedelta(microseconds=behind / 1000)
        stands = datetime.fromtimestamp(last / NS, timezone.utc)
        if self._first is None:
            self._first = written_ns, stands, datetime.now(timezone.utc)
        self._grows = self._grows or written_ns != self._first[0] or time.time_ns() - written_ns < _WRITTEN_NS

    def shows(self, now: datetime) -> datetime:
        """Return its time at a moment, as UTC."""
        shown = now - self._behind
        if not self._grows and self._first is not None:
            shown = self._first[1] + max(now - self._first[2], timedelta())
        self._shown = shown if self._shown is None else max(self._shown, shown)
        return self._shown
