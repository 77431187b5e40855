"""Paths -> the files to read, recognised by content: run directories, directories of runs, files, standard input."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from sglang_probe.collect.clock import SECOND
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.files import (
    Listing,
    first_stamp,
    head,
    is_packed,
    last_stamp,
    listing,
    may_have_rank,
    reason_of,
    status,
)
from sglang_probe.collect.refusal import (
    HINT,
    PROBE_IT,
    directories_below,
    is_binary,
    is_utf16,
    look_below,
    looks_like_log,
    said_of,
)
from sglang_probe.collect.report import Tally

JOIN_SLACK_NS: Final = 30 * SECOND
"""A run directory that was written to until so long before the newest run began may hold ranks of it."""
STDIN: Final = "-"
START: Final = "#"
"""Stands between a log and the one start of it that is wanted, as in a run id."""


class Source(msgspec.Struct, frozen=True):
    """One stream of lines."""

    name: str
    path: Path | None
    """None for standard input."""
    named: bool
    """The user named this very file: it must hold events. A file found in a directory may not."""
    among: str | None = None
    """The directory of runs or of logs that it was found through, of which only the newest run is wanted."""
    starts: tuple[str, ...] = ()
    """Of a log, the starts that are wanted, `2` of `server.log#2`, or the writer's name; none for all."""


class RunEntry(msgspec.Struct, frozen=True):
    """One directory in a directory of runs."""

    path: Path
    files: tuple[Path, ...]
    started_ns: int | None
    """Wall time of its last process's first event; None where no line could be read."""
    refused: tuple[tuple[Path, str], ...] = ()
    """What of it could not be looked at, and why."""
    special: tuple[Path, ...] = ()
    """Pipes, sockets and devices in it."""


def sources(paths: Iterable[str | Path], tally: Tally, *, all_runs: bool) -> list[Source]:
    """Return what to read, each file once. Raises InputError for a path that cannot hold events."""
    found: dict[object, Source] = {}
    for path in paths:
        for source in _sources_of(path, tally, all_runs=all_runs):
            identity = _identity(source)
            known = found.setdefault(identity, source)
            if known.starts and source.starts and known is not source:
                found[identity] = msgspec.structs.replace(known, starts=(*known.starts, *source.starts))
            elif known is not source:
                tally.add("duplicate_file", source.name)
    return list(found.values())


def list_runs(directory: str | Path) -> tuple[RunEntry, ...]:
    """Return the runs in a directory of runs, the newest first. Raises InputError where it cannot be read."""
    return _runs_of([_run_entry(path) for path in _listed(Path(directory)).directories])


def _runs_of(entries: list[RunEntry]) -> tuple[RunEntry, ...]:
    known = [entry for entry in entries if entry.started_ns is not None]
    return tuple(sorted(known, key=lambda entry: (-(entry.started_ns or 0), entry.path.name)))


def _sources_of(path: str | Path, tally: Tally, *, all_runs: bool) -> list[Source]:
    if str(path) == STDIN:
        return [Source("standard input", None, named=True)]
    path = Path(path)
    found = _status(path)
    if found is None and START in path.name:
        name, _, start = str(path).rpartition(START)
        path = Path(name)
        found = _status(path) if name else None
        if found is not None and stat.S_ISREG(found.st_mode):
            return [Source(str(path), path, named=True, starts=(start,))]
    if found is None:
        raise InputError(f"{path}: no such file or directory", HINT)
    if stat.S_ISDIR(found.st_mode):
        return _in_directory(path, tally, all_runs=all_runs)
    return [Source(str(path), path, named=True)]


def _status(path: Path) -> os.stat_result | None:
    try:
        return status(path)
    except OSError as error:
        raise unreadable(str(path), error) from None


def _in_directory(directory: Path, tally: Tally, *, all_runs: bool) -> list[Source]:
    there = _listed(directory)
    refused: list[tuple[Path, str]] = []
    is_run = any(_stamps(there.files, refused))  # read no further than the first that has one
    _tally_unread(there.special, there.refused if is_run else (), tally)
    if is_run:
        for nested in there.directories:
            tally.add("nested_directory", str(nested))
        return [Source(str(file), file, named=False) for file in there.files]
    entries = [_run_entry(path) for path in there.directories]
    runs = _runs_of(entries)
    logs = [file for file in there.files if _is_log(file, refused)]
    if not runs and logs and not directories_below(there):
        return _in_logs(directory, there, logs, tally, all_runs=all_runs)
    if not runs:
        raise _nothing_in(directory, there, [*refused, *(one for entry in entries for one in entry.refused)])
    for file in there.files:
        tally.add("log_beside_runs" if file in logs else "foreign_file", str(file))
    for path, reason in _unseen(there, entries):
        tally.add("unreadable_run", str(path), None, reason)
    return _in_runs(directory, runs, tally, all_runs=all_runs)


def _in_logs(directory: Path, there: Listing, logs: list[Path], tally: Tally, *, all_runs: bool) -> list[Source]:
    """Return all logs of a directory: rotated ones and those of other nodes belong to the newest start, too."""
    _tally_unread(there.special, there.refused, tally)
    for file in there.files:
        if file not in logs:
            tally.add("foreign_file", str(file))
    for nested in there.directories:
        tally.add("nested_directory", str(nested))
    among = None if all_runs else str(directory)
    return [Source(str(file), file, named=False, among=among) for file in logs]


def _is_log(file: Path, refused: list[tuple[Path, str]]) -> bool:
    try:
        beginning = head(file)
    except OSError as error:
        refused.append((file, reason_of(error)))
        return False
    return (not is_binary(beginning) or is_utf16(beginning)) and looks_like_log(beginning)


def _in_runs(directory: Path, runs: tuple[RunEntry, ...], tally: Tally, *, all_runs: bool) -> list[Source]:
    passed_over = 0 if all_runs else _rankless(runs)
    wanted = list(runs) if all_runs else _newest(runs[passed_over:])
    for run in runs[:passed_over]:
        tally.add("rankless_run", str(run.path))
    tally.other_runs += len(runs) - len(wanted)
    for run in wanted:
        _tally_unread(run.special, [one for one in run.refused if one[0] not in run.files], tally)
    among = None if all_runs else str(directory)
    return [Source(str(file), file, named=False, among=among) for run in wanted for file in run.files]


def _tally_unread(special: Iterable[Path], refused: Iterable[tuple[Path, str]], tally: Tally) -> None:
    """Count what of a directory is not even opened. A file that cannot be opened is counted when it is its turn."""
    for path in special:
        tally.add("special_file", str(path))
    for path, reason in refused:
        tally.add("unreadable_file", str(path), None, reason)


def _unseen(there: Listing, entries: list[RunEntry]) -> Iterator[tuple[Path, str]]:
    """Yield the directories that may hold a run, of which nothing can be read, and why."""
    yield from there.refused
    for entry in entries:
        if entry.started_ns is None and entry.refused:
            yield entry.path, entry.refused[0][1]


def _rankless(runs: tuple[RunEntry, ...]) -> int:
    """Return how many of the newest runs have no rank; 0 where none has one. A process that only asks for the server's
    help, or imports a module of it, makes a run, too."""
    return next((position for position, run in enumerate(runs) if may_have_rank(run.files)), 0)


def _newest(runs: tuple[RunEntry, ...]) -> list[RunEntry]:
    """Return the newest run and those that may hold ranks of it: torchrun gives every rank a run id of its own."""
    start = (runs[0].started_ns or 0) - JOIN_SLACK_NS
    return [run for run in runs if run is runs[0] or any(_written_after(file, start) for file in run.files)]


def _written_after(file: Path, moment: int) -> bool:
    """Say whether a file may hold an event after `moment`; reading it then says why it could not be looked at."""
    try:
        if file.stat().st_mtime_ns < moment:
            return False
        if is_packed(file):
            return True
        last = last_stamp(file)
    except OSError:
        return True
    return last is not None and last >= moment


def _nothing_in(directory: Path, there: Listing, refused: list[tuple[Path, str]]) -> InputError:
    refused = [*there.refused, *refused]
    if there.is_empty:
        return InputError(f"{directory} is an empty directory", PROBE_IT)
    if refused:
        path, reason = refused[0]
        name = path.relative_to(directory) if path != directory else path
        what = f"{directory} holds no probe events that can be read ({name}: {reason})"
        return InputError(what, "give one that this user can read")
    first = said_of(there.files[0].name, _head(there.files[0])) if there.files else ""
    below = directories_below(there)
    if below:
        return look_below(directory, f" ({first})" if first else "", below)
    if there.files:
        return InputError(f"{directory} holds no probe events ({first})", HINT)
    return InputError(f"{directory} holds no probe events, nor do the directories in it", PROBE_IT)


def _head(file: Path) -> bytes:
    try:
        return head(file)
    except OSError as error:
        raise unreadable(str(file), error) from None


def _run_entry(directory: Path) -> RunEntry:
    try:
        there = listing(directory)
    except OSError as error:
        return RunEntry(directory, (), None, ((directory, reason_of(error)),))
    refused = list(there.refused)
    started = max((stamp for (stamp,) in _stamps(there.files, refused)), default=None)
    return RunEntry(directory, tuple(there.files), started, tuple(refused), tuple(there.special))


def _stamps(files: Iterable[Path], refused: list[tuple[Path, str]]) -> Iterator[tuple[int]]:
    """Yield when each file begins that begins with an event; put those that cannot be read, and why, into `refused`."""
    for file in files:
        try:
            stamp = first_stamp(file)
        except OSError as error:
            refused.append((file, reason_of(error)))
        else:
            if stamp is not None:
                yield (stamp,)


def _listed(directory: Path) -> Listing:
    try:
        return listing(directory)
    except OSError as error:
        raise unreadable(str(directory), error) from None


def unreadable(name: str, error: OSError) -> InputError:
    """Return the error for what the system does not let this user read."""
    return InputError(f"{name} cannot be read: {reason_of(error)}", "give one that this user can read")


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
            raise unreadable(source.name, error) from None
        raise
    with file:
        yield file


def _identity(source: Source) -> object:
    if source.path is None:
        return STDIN
    try:
        found = source.path.stat()
    except OSError:
        return source.path
    return found.st_dev, found.st_ino
