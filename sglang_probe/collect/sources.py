"""Paths -> the files to read, recognised by content: run directories, directories of runs, files, standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from sglang_probe.collect.clock import SECOND, wall_ns
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.records import BROKEN
from sglang_probe.collect.refusal import HINT, PROBE_IT, refusal
from sglang_probe.collect.report import Tally

PEEK_BYTES: Final = 64 * 1024
"""Read to recognise a file: twice the longest line."""
JOIN_SLACK_NS: Final = 30 * SECOND
"""A run directory that was written to until so long before the newest run began may hold ranks of it."""
STDIN: Final = "-"


class _Stamp(msgspec.Struct):
    """What is read of an event to tell when its run was."""

    schema: str
    event: str
    ts: str


_stamp = msgspec.json.Decoder(_Stamp)


class Source(msgspec.Struct, frozen=True):
    """One stream of lines."""

    name: str
    path: Path | None
    """None for standard input."""
    named: bool
    """The user named this very file: it must hold events. A file found in a directory may not."""
    among: str | None = None
    """The directory of runs that it was found through, of which only the newest run is wanted."""


class RunEntry(msgspec.Struct, frozen=True):
    """One run directory in a directory of runs."""

    path: Path
    files: tuple[Path, ...]
    started_ns: int | None
    """Wall time of its last process's first event; None where no line could be read."""


def sources(paths: Iterable[str | Path], tally: Tally, *, all_runs: bool) -> list[Source]:
    """Return what to read, each file once. Raises InputError for a path that cannot hold events."""
    found: dict[object, Source] = {}
    for path in paths:
        for source in _sources_of(path, tally, all_runs=all_runs):
            identity = _identity(source)
            if identity in found:
                tally.add("duplicate_file", source.name)
            found.setdefault(identity, source)
    return list(found.values())


def list_runs(directory: str | Path) -> tuple[RunEntry, ...]:
    """Return the runs in a directory of runs, the newest first. Raises InputError where it cannot be read."""
    entries = [_run_entry(path) for path in _listed(Path(directory)) if path.is_dir()]
    known = [entry for entry in entries if entry.started_ns is not None]
    return tuple(sorted(known, key=lambda entry: (-(entry.started_ns or 0), entry.path.name)))


def _sources_of(path: str | Path, tally: Tally, *, all_runs: bool) -> list[Source]:
    if str(path) == STDIN:
        return [Source("standard input", None, named=True)]
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory", HINT)
    if path.is_dir():
        return _in_directory(path, tally, all_runs=all_runs)
    return [Source(str(path), path, named=True)]


def _in_directory(directory: Path, tally: Tally, *, all_runs: bool) -> list[Source]:
    entries = _listed(directory)
    files = [entry for entry in entries if not entry.is_dir()]
    if any(_first_stamp(file) is not None for file in files):
        for nested in entries:
            if nested.is_dir():
                tally.add("nested_directory", str(nested))
        return [Source(str(file), file, named=False) for file in files]
    runs = list_runs(directory)
    if not runs:
        raise _nothing_in(directory, entries, files)
    for file in files:
        tally.add("foreign_file", str(file))
    wanted = runs if all_runs else _newest(runs)
    tally.other_runs += len(runs) - len(wanted)
    among = None if all_runs else str(directory)
    return [Source(str(file), file, named=False, among=among) for run in wanted for file in run.files]


def _newest(runs: tuple[RunEntry, ...]) -> list[RunEntry]:
    """Return the newest run and those that may hold ranks of it: torchrun gives every rank a run id of its own."""
    start = (runs[0].started_ns or 0) - JOIN_SLACK_NS
    return [run for run in runs if run is runs[0] or any(_written_after(file, start) for file in run.files)]


def _written_after(file: Path, moment: int) -> bool:
    try:
        if file.stat().st_mtime_ns < moment:
            return False
    except OSError:
        return False
    last = _last_stamp(file)
    return last is not None and last >= moment


def _nothing_in(directory: Path, entries: list[Path], files: list[Path]) -> InputError:
    if not entries:
        return InputError(f"{directory} is an empty directory", PROBE_IT)
    if files:
        first = refusal(files[0].name, _head(files[0])).message
        return InputError(f"{directory} holds no probe events ({first})", HINT)
    return InputError(f"{directory} holds no probe events, nor do the directories in it", PROBE_IT)


def _run_entry(directory: Path) -> RunEntry:
    try:
        files = tuple(path for path in sorted(directory.iterdir()) if not path.name.startswith(".") and path.is_file())
    except OSError:
        files = ()
    stamps = [stamp for file in files if (stamp := _first_stamp(file)) is not None]
    return RunEntry(directory, files, max(stamps, default=None))


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise _unreadable(str(directory), error) from None


def _unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name} cannot be read: {error.strerror or error}", "give one that this user can read")


@contextmanager
def opened(source: Source, stdin: BinaryIO | None) -> Iterator[BinaryIO]:
    """Open a source. Raises InputError where a file that the user named cannot be opened, else OSError."""
    if source.path is None:
        if stdin is None:
            raise InputError("standard input was asked for (-), and there is none", HINT)
        yield stdin
        return
    try:
        file = source.path.open("rb", buffering=0)
    except OSError as error:
        if source.named:
            raise _unreadable(source.name, error) from None
        raise
    with file:
        yield file


def _identity(source: Source) -> object:
    if source.path is None:
        return STDIN
    try:
        status = source.path.stat()
    except OSError:
        return source.path
    return status.st_dev, status.st_ino


def _head(file: Path) -> bytes:
    try:
        if not file.is_file():  # a pipe's bytes can be read only once
            return b""
        with file.open("rb") as stream:
            return stream.read(PEEK_BYTES)
    except OSError:
        return b""


def _first_stamp(file: Path) -> int | None:
    """Return when the first event of a file was written; None where it begins with none."""
    return _stamp_in(_head(file).split(b"\n"))


def _last_stamp(file: Path) -> int | None:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - PEEK_BYTES))
            return _stamp_in(reversed(stream.read(PEEK_BYTES).split(b"\n")))
    except OSError:
        return None


def _stamp_in(lines: Iterable[bytes]) -> int | None:
    for line in lines:
        if b'"schema"' in line:
            try:
                stamp = _stamp.decode(line.strip(b"\0\xef\xbb\xbf \t\r"))
            except BROKEN:
                continue
            if stamp.event.startswith("sglang."):
                return wall_ns(stamp.ts) or 0
    return None
