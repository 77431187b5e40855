"""Follows the start that a path holds: finds it, and reads it again when something was written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sglang_probe.cli.departures import Departures
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.follow_choice import Choice, Found
from sglang_probe.cli.follow_files import EMPTY, Files, FileState, Snapshot
from sglang_probe.cli.log_clock import LogClock
from sglang_probe.cli.reading import where_of
from sglang_probe.cli.unseen import unseen
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import read
from sglang_probe.report.series import NS
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run, Timeline

READING_SHARE: Final = 5
"""While a run is written, at most one in so many seconds is spent reading it."""
STALE_S: Final = 600.0
"""A file without anything of SGLang's that nobody wrote to for so long will not become a log."""
_OF_A_LOG: Final = {".log", ".txt", ".out", ".err"}


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
    serial: int = 0
    """Rises when another run is followed."""
    unseen: str = ""
    """What of its files was not read."""
    order: str = ""
    """In which order its processes were seen to go."""


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
        self._choice = Choice()
        self._departures = Departures()
        self._seen: Snapshot = EMPTY
        self._changed_at: float | None = None
        self._pause = Pause(0.0, 0.0)
        self._unread = False
        self._known_at = datetime.now(timezone.utc)
        """Until then what was read is all that there was: a rank is not late because it was not read."""
        self._found: Found | None = None
        self._timeline: Timeline | None = None
        self._unseen = ""
        self._clock: LogClock | None = None
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
        changed = snapshot != self._seen
        if self._changed_at is None or self._told_of(snapshot) != self._told_of(self._seen):
            self._changed_at = clock - (_age(snapshot.files) if self._changed_at is None else 0.0)
        self._unread = self._unread or changed or self._first
        self._unread = self._departures.look() or self._unread
        self._seen = snapshot
        if self._unread and clock >= (self._pause.busy if changed else self._pause.quiet):
            begun = time.process_time()
            self._read(snapshot)
            self._unread = False
            self._pause = Pause.after(time.process_time() - begun)
        if not self._unread:
            self._known_at = now
        return self._sight(clock - (self._changed_at or clock))

    def rest(self, seconds: float) -> None:
        """Sleep so long, and see meanwhile in which order processes go."""
        self._unread = self._departures.rest(seconds) or self._unread

    def _told_of(self, snapshot: Snapshot) -> tuple[FileState, ...]:
        """Return the files of the run that is followed; all where none is."""
        places = () if self._found is None else self._found.places
        return _files_in(snapshot, places) if snapshot.among and places else snapshot.files

    def _sight(self, quiet: float) -> Sight:
        if self._found is None:
            return Sight(None, None, self._known_at, quiet, waiting=self._waiting())
        now = self._known_at if self._clock is None else self._clock.shows(self._known_at)
        order = self._departures.says()
        return Sight(self._found.run, self._timeline, now, quiet, "", self._choice.serial, self._unseen, order)

    def _read(self, snapshot: Snapshot) -> None:
        self._first, is_first = False, self._first
        if not snapshot.paths:
            self._choice.nothing()
            self._found = self._timeline = None
            return
        try:
            collected = read(snapshot.paths, all_runs=snapshot.among)
        except InputError as error:
            self._refuse_or_wait(error, snapshot, is_first=is_first)
            self._choice.nothing()
            self._found = self._timeline = None
            return
        timeline = build(collected)
        serial = self._choice.serial
        found = [Found(run, tuple(where)) for run, where in zip(timeline.runs, where_of(collected), strict=True)]
        self._found = self._chosen(found, snapshot)
        self._complaint = ""
        if self._found is None:
            self._timeline = None
            return
        run = self._found.run
        self._timeline = msgspec.structs.replace(timeline, runs=(run,))
        self._unseen = unseen(collected, run)
        if serial != self._choice.serial:
            self._departures, self._clock = Departures(), LogClock() if run.started is None else None
        self._departures.take(run)
        if self._clock is not None:
            self._clock.set(run, snapshot.written_ns)
        self._files.hold(self._found.places)

    def _chosen(self, found: list[Found], snapshot: Snapshot) -> Found | None:
        if not snapshot.among:
            return self._choice.last(found)
        watched = time.monotonic() - self._begun
        return self._choice.among(found, lambda one: _age(_files_in(snapshot, one.places)), watched)

    def _refuse_or_wait(self, error: InputError, snapshot: Snapshot, *, is_first: bool) -> None:
        """A file that is being written may become what it is not yet; one that is not, or is no text, will not."""
        alone = len(snapshot.files) == 1 and snapshot.files[0].path == self._path
        if is_first and alone and (_age(snapshot.files) > STALE_S or "binary" in error.message):
            raise BadUse(str(error)) from error
        self._complaint = error.message

    def _waiting(self) -> str:
        how = "start the server with: sglang-probe run -- python -m sglang.launch_server ..."
        how = how if self._named else f"{how}, in this directory"
        files = self._seen.files
        if len(files) == 1 and files[0].path == self._path:
            told = f"; so far: {self._complaint}" if self._complaint else ""
            return f"waiting for the server's lines in {self._path}{told}"
        there = "" if self._seen is not EMPTY else ", which does not exist yet"
        if not files and Path(self._path).suffix in _OF_A_LOG:
            return f"waiting for the server's lines in {self._path}{there}"
        told = f"; so far: {self._complaint}" if self._complaint and files else ""
        if self._choice.passed:
            told += f"; {list(self._choice.passed.values())[-1]}"
        return f"waiting for a run in {self._path}{there}; {how}{told}"


def _files_in(snapshot: Snapshot, places: tuple[str, ...]) -> tuple[FileState, ...]:
    return tuple(file for file in snapshot.files if str(Path(file.path).parent) in places)


def _age(files: Iterable[FileState]) -> float:
    """Return for how long nothing was written, in seconds."""
    written = max((file.mtime_ns for file in files), default=None)
    return 0.0 if written is None else max((time.time_ns() - written) / NS, 0.0)
