"""Files and directories before they are read: what is there, whether it can be read, and when its events were written.

Everything here raises OSError where the system refuses, and nothing else: the caller knows what that costs.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from sglang_probe.collect.clock import wall_ns
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.records import BROKEN
from sglang_probe.collect.repair import without_half_pairs
from sglang_probe.collect.unpack import beginning, packing_of
from sglang_probe.events.names import MEMORY_EVENT_PREFIX

PEEK_BYTES: Final = 64 * 1024
"""Read to recognise a file: twice the longest line."""
SEARCHED_BYTES: Final = 1 << 20
"""Read to find a rank's first memory event: what a process says of itself and its hooks before takes a tenth."""
_MEMORY: Final = re.compile(rb'"event"\s*:\s*"' + re.escape(MEMORY_EVENT_PREFIX).encode())


class _Stamp(msgspec.Struct):
    """What is read of an event to tell when its run was."""

    schema: str
    event: str
    ts: str


_stamp = msgspec.json.Decoder(_Stamp)


class Listing(msgspec.Struct):
    """What lies in a directory, by kind and name. Hidden entries are left out."""

    files: list[Path] = []
    directories: list[Path] = []
    special: list[Path] = []
    """Pipes, sockets and devices: to open one may wait for ever."""
    refused: list[tuple[Path, str]] = []
    """Entries that cannot be looked at, and why."""

    @property
    def is_empty(self) -> bool:
        """True where there is nothing, read or not."""
        return not (self.files or self.directories or self.special or self.refused)


def listing(directory: Path) -> Listing:
    """Return what lies in a directory."""
    found = Listing()
    for path in sorted(directory.iterdir(), key=attrgetter("name")):
        if path.name.startswith("."):
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            found.refused.append((path, reason_of(error)))
            continue
        if stat.S_ISDIR(mode):
            found.directories.append(path)
        else:
            (found.files if stat.S_ISREG(mode) else found.special).append(path)
    return found


def status(path: Path) -> os.stat_result | None:
    """Return what the system knows of a path; None where there is nothing of that name."""
    try:
        return path.stat()
    except ValueError as error:  # a NUL byte in the name
        raise OSError(errno.EINVAL, str(error)) from None
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise


def reason_of(error: OSError) -> str:
    """Return why the system refused."""
    return error.strerror or str(error)


def head(file: Path) -> bytes:
    """Return the beginning of a file."""
    return _beginning(file, PEEK_BYTES)


def _beginning(file: Path, size: int) -> bytes:
    """Return the beginning of a file's content; of the file itself where nothing here can decompress it."""
    with file.open("rb") as stream:
        try:
            return beginning(stream, str(file), size)
        except InputError:
            stream.seek(0)
            return stream.read(size)


def first_stamp(file: Path) -> int | None:
    """Return when the first event of a file was written (wall time, ns); None where it begins with none."""
    return _stamp_in(head(file).split(b"\n"))


def may_have_rank(files: Iterable[Path]) -> bool:
    """Say whether a memory event, which only ranks write, stands in the beginning of a file, or one cannot be read."""
    try:
        return any(_MEMORY.search(_beginning(file, SEARCHED_BYTES)) for file in files)
    except OSError:
        return True


def is_packed(file: Path) -> bool:
    """Say whether a file is compressed."""
    with file.open("rb") as stream:
        return packing_of(stream.read(16)) is not None


def last_stamp(file: Path) -> int | None:
    """Return when the last event of a file was written (wall time, ns); None where it ends with none, as a
    compressed one does."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - PEEK_BYTES))
        return _stamp_in(reversed(stream.read(PEEK_BYTES).split(b"\n")))


def _stamp_in(lines: Iterable[bytes]) -> int | None:
    for line in lines:
        if b'"schema"' in line:
            try:
                stamp = _stamp.decode(without_half_pairs(line.strip(b"\0\xef\xbb\xbf \t\r")))
            except BROKEN:
                continue
            if stamp.event.startswith("sglang."):
                return wall_ns(stamp.ts) or 0
    return None
