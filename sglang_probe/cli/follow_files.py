"""What a watched path holds at this moment, without reading it: files, their sizes, and which runs may be going on."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sglang_probe.cli.errors import BadUse
from sglang_probe.collect.files import first_stamp, is_packed

JOIN_SLACK_NS: Final = 30 * 1_000_000_000
"""A run directory that was written to until so long before the newest one was made may hold ranks of the same start."""


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
        self._log: FileState | None = None
        self._rotated: str | None = None

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
        if before is None and found.size and is_packed(Path(self._path)):
            raise BadUse(f"{self._path} is compressed, and such a file does not grow; use `explain` or `timeline`")
        if before is not None and (before.device, before.inode) != (found.device, found.inode):
            self._rotated = _moved_to(self._path, before)
        rotated = None if self._rotated is None else _state(self._rotated)
        files = (found,) if rotated is None else (rotated, found)
        return Snapshot(tuple(file.path for file in files if file.size), files, among=False)

    def _in_directory(self) -> Snapshot:
        if not os.access(self._path, os.R_OK | os.X_OK):
            raise BadUse(f"{self._path} cannot be read by this user; name another")
        files = tuple(_files(self._path))
        if any(_holds_events(file.path) for file in files):  # read no further than the first that does
            return Snapshot((self._path,), files, among=False)
        directories = tuple(_directories(self._path))
        if directories != self._directories:
            self._directories = directories
            self._candidates = tuple(_newest(directories))
        if not self._candidates:
            return Snapshot((self._path,) if files else (), files, among=False)
        inside = tuple(file for one in self._candidates for file in _files(one))
        return Snapshot(self._candidates, inside, among=True)


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
    return FileState(entry.path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns), found.st_mode


def _newest(directories: Iterable[FileState]) -> Iterator[str]:
    """Yield the run directory that was made last, and those that may hold ranks of the same start: torchrun gives each
    rank a run id of its own, and so do the hosts of one start."""
    written: dict[str, int] = {}
    made: dict[str, int] = {}
    for directory in directories:
        times = [file.mtime_ns for file in _files(directory.path) if file.size]
        if times:
            written[directory.path], made[directory.path] = max(times), directory.mtime_ns
    since = max(made.values(), default=0) - JOIN_SLACK_NS
    yield from (path for path, moment in written.items() if max(moment, made[path]) >= since)


def _holds_events(path: str) -> bool:
    try:
        return first_stamp(Path(path)) is not None
    except OSError:
        return False


def _moved_to(path: str, before: FileState) -> str | None:
    """Return where a log was moved to when it was rotated; None where it is gone."""
    beside = _files(str(Path(path).parent))
    return next((one.path for one in beside if (one.device, one.inode) == (before.device, before.inode)), None)
