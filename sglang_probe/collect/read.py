"""The way in: paths -> launches with their processes and ordered events, and a report of what was lost on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from sglang_probe.collect.clock import Clock, offsets
from sglang_probe.collect.files import PEEK_BYTES, reason_of
from sglang_probe.collect.grouping import launches
from sglang_probe.collect.launch import Launch, Member, first_member
from sglang_probe.collect.lines import Batch, LineReader
from sglang_probe.collect.logs.model import LogRun
from sglang_probe.collect.processes import Gatherer, sortable
from sglang_probe.collect.quiet import no_garbage_collection
from sglang_probe.collect.refusal import is_binary, refusal
from sglang_probe.collect.report import ReadReport, Tally
from sglang_probe.collect.skew import HostSkew, skews
from sglang_probe.collect.sources import Source, opened, sources, unreadable

BLOCK_BYTES: Final = 64 * 1024
"""Read at a time: below the size from which malloc asks the kernel for fresh pages each time (128 KB)."""
SNIFF_BYTES: Final = 4096
"""Looked at to tell a binary file from text."""


class CollectedRun(msgspec.Struct, kw_only=True):
    """One launch of a server, over all its hosts."""

    run_id: str
    launch: int
    run_ids: tuple[str, ...]
    """Every run id found to be this launch."""
    members: tuple[Member, ...]
    """Its processes, in the order in which they started."""
    clock: Clock
    skews: tuple[HostSkew, ...] = ()


class Collected(msgspec.Struct, kw_only=True):
    """Everything that was read, the oldest launch first."""

    runs: tuple[CollectedRun, ...]
    report: ReadReport
    logs: tuple[LogRun, ...] = ()
    """Starts read out of plain SGLang logs, in the order of the text."""


def read(paths: Sequence[str | Path], stdin: BinaryIO | None = None, *, all_runs: bool = False) -> Collected:
    """Read probe events from run directories, directories of runs, files, or `-` (then from `stdin`).

    Of a directory of runs only the newest run that has a rank is read, unless `all_runs`. Raises InputError, and
    nothing else, where a path cannot be read or holds no probe event, and for events of a newer major schema.
    """
    tally = Tally()
    gatherer = Gatherer(tally)
    wanted = sources(paths, tally, all_runs=all_runs)
    with no_garbage_collection():
        for batch in _batches(wanted, stdin, tally, gatherer):
            gatherer.add(batch)
        processes = gatherer.processes()
        clock = Clock(offsets(processes))
        found = launches(processes, clock)
        kept = _kept(found, {source.name: source.among for source in wanted}, tally)
        tally.other_runs += len(found) - len(kept)
        return Collected(runs=_named(found, kept, clock), report=tally.report())


def stream(paths: Sequence[str | Path], stdin: BinaryIO | None = None, *, all_runs: bool = False) -> Iterator[Batch]:
    """Yield the events as they stand in the files, a block at a time: bounded memory, no grouping. Raises as `read`."""
    tally = Tally()
    yield from _batches(sources(paths, tally, all_runs=all_runs), stdin, tally, None)


def _batches(wanted: list[Source], stdin: BinaryIO | None, tally: Tally, gatherer: Gatherer | None) -> Iterator[Batch]:
    for source in wanted:
        try:
            with opened(source, stdin) as file:
                reader = LineReader(source.name, tally)
                yield from _of_file(source, file, reader, tally)
                if reader.torn_tail and gatherer is not None:
                    gatherer.mark_torn(source.name)
        except OSError as error:
            if source.named:
                raise unreadable(source.name, error) from None
            tally.add("unreadable_file", source.name, None, reason_of(error))


def _of_file(source: Source, file: BinaryIO, reader: LineReader, tally: Tally) -> Iterator[Batch]:
    """Yield a file's batches; refuse or count a file without events."""
    before = tally.events
    head = block = file.read(BLOCK_BYTES)
    if not _worth_reading(source, head):
        _without_events(source, head, tally, torn=False)
        return
    while block:
        tally.bytes += len(block)
        yield from reader.feed(block)
        block = file.read(BLOCK_BYTES)
    yield from reader.close()
    if tally.events > before:
        tally.files += 1
    else:
        _without_events(source, head, tally, torn=reader.torn_tail)


def _worth_reading(source: Source, head: bytes) -> bool:
    """Say whether a file may hold events; another program's large file in a run directory is not read to its end."""
    if is_binary(head[:SNIFF_BYTES]):
        return False
    return source.named or source.name.endswith(".jsonl") or b'"schema"' in head


def _without_events(source: Source, head: bytes, tally: Tally, *, torn: bool) -> None:
    if source.named:
        raise refusal(source.name, head[:PEEK_BYTES], torn=torn)
    tally.add("foreign_file" if head else "empty_file", source.name)


def _kept(found: list[Launch], among: dict[str, str | None], tally: Tally) -> list[Launch]:
    """Of launches found through a directory of runs keep the newest that has a rank; keep all others."""
    kept: list[Launch] = []
    newest: dict[str, Launch] = {}
    passed_over: dict[str, list[Launch]] = {}
    for launch in found:
        origins = {among[file] for member in launch.members for file in member.process.files}
        if None in origins:
            kept.append(launch)
        for origin in map(str, origins - {None}):
            if origin in newest and newest[origin].has_rank and not launch.has_rank:
                passed_over[origin].append(launch)
            else:
                newest[origin], passed_over[origin] = launch, []
    for launch in itertools.chain.from_iterable(passed_over.values()):
        tally.add("rankless_run", str(Path(first_member(launch).process.files[0]).parent))
    return [launch for launch in found if launch in kept or launch in newest.values()]


def _named(found: list[Launch], kept: list[Launch], clock: Clock) -> tuple[CollectedRun, ...]:
    """Number the launches of each run id in the order of their start."""
    numbers: dict[str, int] = {}
    runs = []
    for launch in found:
        run_id = first_member(launch).process.key.run_id
        number = numbers[run_id] = numbers.get(run_id, -1) + 1
        if launch in kept:
            runs.append(_collected(launch, run_id, number, clock))
    return tuple(runs)


def _collected(launch: Launch, run_id: str, number: int, clock: Clock) -> CollectedRun:
    tied = skews(launch, clock)
    members = sorted(launch.members, key=lambda member: (member.start, sortable(member.process.key)))
    return CollectedRun(
        run_id=run_id,
        launch=number,
        run_ids=tuple(sorted({member.process.key.run_id for member in members})),
        members=tuple(members),
        clock=Clock(
            {member.boot: clock.offsets.get(member.boot) for member in members}, {tie.boot: tie.ahead for tie in tied}
        ),
        skews=tuple(tied),
    )
