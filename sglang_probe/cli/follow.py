"""Follows the start that a path holds: finds it, and reads it again when something was written."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple

import msgspec

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.follow_files import EMPTY, Files, Snapshot
from sglang_probe.cli.reading import where_of
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import read
from sglang_probe.report.outcome import headline
from sglang_probe.report.series import NS, nanoseconds
from sglang_probe.timeline import build
from sglang_probe.timeline.liveness import ProcessId, is_alive
from sglang_probe.timeline.model import Process, Run, Timeline
from sglang_probe.timeline.processes import ranks_of

SILENCE_S: Final = 1800.0
"""After so long without a word, of a start whose processes cannot be asked, nothing more is expected: it is torch's own
limit for a collective."""
READING_SHARE: Final = 5
"""While a run is written, at most one in so many seconds is spent reading it."""
STALE_S: Final = 600.0
"""A file without anything of SGLang's that nobody wrote to for so long will not become a log."""
_WRITTEN_NS: Final = 60 * NS
"""A line is written at most so long after its stamp."""
_QUARTER_NS: Final = 900 * NS
"""Zones differ by multiples of a quarter of an hour."""


class Sight(NamedTuple):
    """What there is to see at one moment."""

    run: Run | None
    timeline: Timeline | None
    """Of that run alone."""
    now: datetime
    """The time by the clock that the run is told by, as UTC."""
    quiet_s: float
    """For so long nothing was written."""
    waiting: str = ""
    """What is waited for, where there is no run."""


class Pause(NamedTuple):
    """Until when nothing is read again, in monotonic seconds."""

    busy: float
    """While more is being written."""
    quiet: float
    """Once nothing was, for a look: what was written last is worth more than the share."""

    @classmethod
    def after(cls, took_s: float) -> Pause:
        """Return the pause after a reading that took so much of a core."""
        now = time.monotonic()
        return cls(now + (READING_SHARE - 1) * took_s, now + took_s)


class Follower:
    """Looks at a path; cheap while nothing changes."""

    def __init__(self, path: str, *, named: bool) -> None:
        """`named`: the user gave the path."""
        self._path, self._named = path, named
        self._files = Files(path)
        self._seen: Snapshot = EMPTY
        self._changed_at: float | None = None
        self._pause = Pause(0.0, 0.0)
        self._unread = False
        self._known_at = datetime.now(timezone.utc)
        """Until then what was read is all that there was: a rank is not late because it was not read."""
        self._run: Run | None = None
        self._timeline: Timeline | None = None
        self._offset_ns = 0
        self._passed: dict[tuple[str, int], str] = {}
        """Runs that are over and not followed, and what became of them."""
        self._followed: tuple[str, int] | None = None
        self._begun = time.monotonic()
        self._first = True
        self._complaint = ""

    def look(self) -> Sight:
        """Return what there is now.

        Raises:
            BadUse: the path holds what can never be followed.
        """
        clock, now = time.monotonic(), datetime.now(timezone.utc)
        snapshot = self._files.snapshot()
        changed = snapshot != self._seen or self._changed_at is None
        if changed:
            self._changed_at = clock - (_age(snapshot) if self._changed_at is None else 0.0)
            self._unread = True
        elif self._run is not None and any(_is_gone(process) for process in self._run.processes):
            self._unread = True
        self._seen = snapshot
        if self._unread and clock >= (self._pause.busy if changed else self._pause.quiet):
            begun = time.process_time()
            self._read(snapshot)
            self._unread = False
            self._pause = Pause.after(time.process_time() - begun)
        if not self._unread:
            self._known_at = now
        return self._sight(clock - (self._changed_at or clock))

    def _sight(self, quiet: float) -> Sight:
        now = self._known_at - timedelta(microseconds=self._offset_ns / 1000)
        if self._run is None:
            return Sight(None, None, now, quiet, self._waiting())
        return Sight(self._run, self._timeline, now, quiet)

    def _read(self, snapshot: Snapshot) -> None:
        if not snapshot.paths:
            self._run = self._timeline = None
            self._first = False
            return
        try:
            collected = read(snapshot.paths, all_runs=snapshot.among)
        except InputError as error:
            self._refuse_or_wait(error, snapshot)
            self._run = self._timeline = None
            return
        timeline = build(collected)
        self._run = self._chosen(timeline, snapshot, where_of(collected))
        self._followed = self._followed if self._run is None else _key(self._run)
        self._timeline = None if self._run is None else msgspec.structs.replace(timeline, runs=(self._run,))
        self._offset_ns = 0 if self._run is None else _offset(self._run, snapshot)
        self._first, self._complaint = False, ""

    def _refuse_or_wait(self, error: InputError, snapshot: Snapshot) -> None:
        """A file that is being written may become what it is not yet; one that is not, or is no text, will not."""
        alone = len(snapshot.files) == 1 and snapshot.files[0].path == self._path
        if self._first and alone and (_age(snapshot) > STALE_S or "binary" in error.message):
            raise BadUse(str(error)) from error
        self._complaint, self._first = error.message, False

    def _chosen(self, timeline: Timeline, snapshot: Snapshot, where: list[list[str]]) -> Run | None:
        """Return the run to follow: of a directory of runs one that goes on, or one that ended while it was watched."""
        runs = [run for run in timeline.runs if _key(run) not in self._passed]
        if not snapshot.among:
            return runs[-1] if runs else None
        silence = _age(snapshot)
        going_on = [run for run in runs if not is_over(run, silence)]
        followed = [run for run in going_on if _key(run) == self._followed]
        if going_on:
            return followed[0] if followed else max(going_on, key=lambda run: bool(ranks_of(run)))
        before = self._first or silence > time.monotonic() - self._begun
        for run, places in zip(timeline.runs, where, strict=True):
            if run in runs and (not ranks_of(run) or (before and _key(run) != self._followed)):
                said = headline(run) if ranks_of(run) else "it ended before any rank began"
                self._passed[_key(run)] = f"{run.run_id} is over: {said} (sglang-probe explain {places[0]})"
        left = [run for run in runs if _key(run) not in self._passed]
        return left[-1] if left else None

    def _waiting(self) -> str:
        how = "start the server with: sglang-probe run -- python -m sglang.launch_server ..."
        how = how if self._named else f"{how}, in this directory"
        files = self._seen.files
        if len(files) == 1 and files[0].path == self._path:
            return f"waiting for a start in {self._path}{f'; so far: {self._complaint}' if self._complaint else ''}"
        there = "" if self._seen is not EMPTY else ", which does not exist yet"
        told = f"; so far: {self._complaint}" if self._complaint and files else ""
        if self._passed:
            told += f"; {list(self._passed.values())[-1]}"
        return f"waiting for a run in {self._path}{there}; {how}{told}"


def is_over(run: Run, silent_s: float) -> bool:
    """Say whether a run will not become another: its processes are gone, or, where that cannot be known, silent."""
    alive = [process.alive for process in run.processes]
    if any(alive):
        return False
    if run.outcome in {"failed", "died"} or (alive and all(one is False for one in alive)):
        return True
    return silent_s > SILENCE_S


def _key(run: Run) -> tuple[str, int]:
    return run.run_id, run.launch


def _age(snapshot: Snapshot) -> float:
    """Return for how long nothing was written, in seconds."""
    written = snapshot.written_ns
    return 0.0 if written is None else max((time.time_ns() - written) / NS, 0.0)


def _is_gone(process: Process) -> bool:
    """Say whether a process that ran when its run was read does no longer."""
    if not process.alive or process.host is None or process.pid is None:
        return False
    return is_alive(ProcessId(process.host, process.boot_id, process.pid, process.start_ticks)) is False


def _offset(run: Run, snapshot: Snapshot) -> int:
    """Return how far UTC is ahead of the clock of a log, which names no zone, in nanoseconds; 0 for events."""
    last = nanoseconds(run.local_ended) if run.started is None else None
    if last is None or snapshot.written_ns is None:
        return 0
    apart = snapshot.written_ns - last
    zone = round(apart / _QUARTER_NS) * _QUARTER_NS
    return zone if abs(apart - zone) < _WRITTEN_NS else apart  # a copy of a log was not written when it was printed
