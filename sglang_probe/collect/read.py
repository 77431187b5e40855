"""The way in: paths -> launches with their processes and ordered events, and a report of what was lost on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from sglang_probe.collect.clock import Clock, offsets
from sglang_probe.collect.grouping import launches
from sglang_probe.collect.inputs import Inputs, Watch
from sglang_probe.collect.launch import Launch, Member, first_member
from sglang_probe.collect.lines import Batch
from sglang_probe.collect.logs.choose import newest, told_apart, wanted
from sglang_probe.collect.logs.join import Text, log_runs, servers
from sglang_probe.collect.logs.model import LogRun
from sglang_probe.collect.processes import Gatherer, sortable
from sglang_probe.collect.quiet import no_garbage_collection
from sglang_probe.collect.report import ReadReport, Tally
from sglang_probe.collect.skew import HostSkew, skews
from sglang_probe.collect.sources import sources


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


def read(
    paths: Sequence[str | Path], stdin: BinaryIO | None = None, *, all_runs: bool = False, watch: Watch | None = None
) -> Collected:
    """Read probe events and plain SGLang logs from run directories, directories of runs or of logs, files, or `-` (then
    from `stdin`); each is told by its content.

    Of a directory of runs only the newest run that has a rank is read, and of a directory of logs only the newest start
    is returned, unless `all_runs`. Raises InputError, and nothing else, where a path cannot be read or holds neither,
    for events of a newer major schema, and where two servers wrote one text that cannot be told apart.
    """
    tally = Tally()
    gatherer = Gatherer(tally)
    given = sources(paths, tally, all_runs=all_runs)
    inputs = Inputs(tally, gatherer, logs=True, watch=watch)
    with no_garbage_collection():
        for batch in inputs.batches(given, stdin):
            gatherer.add(batch)
        processes = gatherer.processes()
        clock = Clock(offsets(processes))
        found = launches(processes, clock)
        kept = _kept(found, {source.name: source.among for source in given}, tally)
        tally.other_runs += len(found) - len(kept)
        logs = _logs(inputs.texts, kept, tally)
        return Collected(runs=_named(found, kept, clock), report=tally.report(), logs=logs)


def stream(paths: Sequence[str | Path], stdin: BinaryIO | None = None, *, all_runs: bool = False) -> Iterator[Batch]:
    """Yield the events as they stand in the files, a block at a time: bounded memory, no grouping, no logs. Raises as
    `read`."""
    tally = Tally()
    yield from Inputs(tally, None, logs=False).batches(sources(paths, tally, all_runs=all_runs), stdin)


def _logs(texts: list[Text], kept: list[Launch], tally: Tally) -> tuple[LogRun, ...]:
    """Return the server starts that logs tell of."""
    directories = {str(Path(file).parent) for launch in kept for one in launch.members for file in one.process.files}
    clear = told_apart(servers(texts), tally, alone=not kept)
    return wanted(log_runs(newest(clear, texts, directories, tally), texts), texts)


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
