"""What a watched path holds at this moment, without reading it: files, their sizes, and which runs may be going on."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sglang_probe.cli.errors import BadUse
from sglang_probe.collect.files import first_stamp, is_packed, last_stamp, reason_of
from sglang_probe.timeline.liveness import is_running

JOIN_SLACK_NS: Final = 30 * 1_000_000_000
"""A run directory that was written to until so long before the newest run began may hold ranks of the same start."""
_OURS: Final = re.compile(r".+\.(?P<pid>\d{1,9})\.(?P<start>\d{1,18})\.jsonl")
"""<host>.<pid>.<start>.jsonl, as the agent names the file of a process."""
Begins = dict[tuple[str, int, int], int | None]
"""File -> when its first event was written (wall time, ns): it is read once."""


class FileState(NamedTuple):
    """What tells whether a file has changed."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int


class Snapshot(NamedTuple):
    """What is there to read."""

    paths: tuple[str, ...]
    """What to give to the reader; nothing while there is nothing."""
    files: tuple[FileState, ...]
    among: bool
    """They are of the newest of several runs, and none of them was named."""

    @property
    def written_ns(self) -> int | None:
        """When one of the files was last written to, by the clock of their file system."""
        return max((file.mtime_ns for file in self.files), default=None)


EMPTY: Final = Snapshot((), (), among=False)


class Files:
    """Looks at a path again and again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._directories: tuple[FileState, ...] = ()
        self._candidates: tuple[str, ...] = ()
        self._held: tuple[str, ...] = ()
        self._begins: Begins = {}
        self._log: FileState | None = None
        self._former: list[tuple[int, int]] = []
        """Device and inode of what the log was before each rotation, the oldest first."""

    def hold(self, directories: Iterable[str]) -> None:
        """Go on looking into these directories, whatever is newer: the run that is followed lies there."""
        self._held = tuple(directories)

    def snapshot(self) -> Snapshot:
        """Return what is there now.

        Raises:
            BadUse: it is something that does not grow, or cannot be looked at.
        """
        found = _state(self._path)
        if found is None:
            return EMPTY
        mode = Path(self._path).stat().st_mode
        if stat.S_ISDIR(mode):
            return self._in_directory()
        if not stat.S_ISREG(mode):
            raise BadUse(f"{self._path} is a pipe, socket or device; {HOW_TO_PIPE}")
        return self._of_file(found)

    def _of_file(self, found: FileState) -> Snapshot:
        before, self._log = self._log, found
        if before is None and _is_packed(self._path):
            raise BadUse(f"{self._path} is compressed, and such a file does not grow; use `explain` or `timeline`")
        now = found.device, found.inode
        if before is not None and (before.device, before.inode) != now:
            self._former = [*(one for one in self._former if one != now), (before.device, before.inode)]
        files = (*_moved(self._path, self._former), found)
        return Snapshot(tuple(file.path for file in files if file.size), files, among=False)

    def _in_directory(self) -> Snapshot:
        if not os.access(self._path, os.R_OK | os.X_OK):
            raise BadUse(f"{self._path} cannot be read by this user; name another")
        files = tuple(_files(self._path))
        if any(_holds_events(file.path) for file in files):  # read no further than the first that does
            return Snapshot((self._path,), files, among=False)
        directories = tuple(_directories(self._path))
        if directories != self._directories:
            self._candidates, is_whole = _candidates(directories, self._begins)
            self._directories = directories if is_whole else ()
        there = {one.path for one in directories}
        candidates = tuple(sorted({*self._candidates, *self._held} & there))
        if not candidates:
            return Snapshot((self._path,) if files else (), files, among=False)
        inside = tuple(file for one in candidates for file in _files(one))
        return Snapshot(candidates, inside, among=True)


HOW_TO_PIPE: Final = (
    "watch ends when the server is ready, which would end a server that writes into it:"
    " let the server write a file (... 2>&1 | tee server.log) and watch server.log"
)


def _state(path: str) -> FileState | None:
    try:
        found = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadUse(f"{path} cannot be looked at: {error}; name another") from error
    return FileState(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _files(directory: str) -> Iterator[FileState]:
    """Yield the regular files in a directory, by name."""
    for entry in _entries(directory):
        found = _state_of(entry)
        if found is not None and stat.S_ISREG(found[1]):
            yield found[0]


def _directories(directory: str) -> Iterator[FileState]:
    for entry in _entries(directory):
        found = _state_of(entry)
        if found is not None and stat.S_ISDIR(found[1]):
            yield found[0]


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted((one for one in entries if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError:  # gone, or closed to this user: there is nothing to read
        return []


def _state_of(entry: os.DirEntry[str]) -> tuple[FileState, int] | None:
    try:
        found = entry.stat()
    except OSError:
        return None
    state = FileState(str(Path(entry.path)), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return state, found.st_mode


def _candidates(directories: Iterable[FileState], begins: Begins) -> tuple[tuple[str, ...], bool]:
    """Return the directories of the run that began last, of those that may hold ranks of the same start (torchrun gives
    each rank a run id of its own, and so do the hosts of one start), and of those with a process that lives; and
    whether every file that may be of a new run could be told.

    When a run began its own events say: whatever is written into a directory makes it no newer.
    """
    there = [(one.path, [file for file in _files(one.path) if file.size]) for one in directories]
    written = {path: max(file.mtime_ns for file in files) for path, files in there if files}
    files_of = dict(there)
    newest, began = 0, dict[str, int]()
    for path in sorted(written, key=lambda one: -written[one]):
        if written[path] < newest - JOIN_SLACK_NS:
            break  # what was written last before that began before it, too
        stamps = [stamp for file in files_of[path] if (stamp := _begin(file, begins)) is not None]
        if stamps:
            began[path] = max(stamps)
            newest = max(newest, began[path])
    found = [
        path
        for path in files_of
        if _lives(files_of[path])
        or (path in began and max(began[path], _last_written(files_of[path], begins)) >= newest - JOIN_SLACK_NS)
    ]
    fresh = [one.path for one in directories if one.path not in began and one.mtime_ns >= newest - JOIN_SLACK_NS]
    return tuple(found), not fresh


def _begin(file: FileState, begins: Begins) -> int | None:
    key = file.path, file.device, file.inode
    if begins.get(key) is None:
        try:
            begins[key] = first_stamp(Path(file.path))
        except OSError:
            begins[key] = None
    return begins[key]


def _last_written(files: Iterable[FileState], begins: Begins) -> int:
    """Return when an event was last written: a report beside them is none, and a copy has a time of its own."""
    return max((_end(file) for file in files if _begin(file, begins) is not None), default=0)


def _end(file: FileState) -> int:
    try:
        last = last_stamp(Path(file.path))
    except OSError:
        last = None
    return file.mtime_ns if last is None else min(last, file.mtime_ns)


def _lives(files: Iterable[FileState]) -> bool:
    """Say whether a process whose file lies there seems to run here, by its name alone."""
    names = (_OURS.fullmatch(Path(file.path).name) for file in files)
    return any(is_running(int(name["pid"]), int(name["start"])) for name in names if name is not None)


def _holds_events(path: str) -> bool:
    try:
        return first_stamp(Path(path)) is not None
    except OSError:
        return False


def _is_packed(log: str) -> bool:
    """Say whether a log is compressed.

    Raises:
        BadUse: it may not be read.
    """
    try:
        return is_packed(Path(log))
    except OSError as error:
        raise BadUse(f"{log} cannot be read: {reason_of(error)}; give one that this user can read") from error


def _moved(path: str, former: list[tuple[int, int]]) -> list[FileState]:
    """Return where a log's earlier parts were moved to as it was rotated, the oldest first; those gone are left out."""
    if not former:
        return []
    beside = {(one.device, one.inode): one for one in _files(str(Path(path).parent)) if one.path != str(Path(path))}
    return [beside[one] for one in former if one in beside]
