"""What a table is: a row a column, from which it is built, stored, described and checked; and what its rows come from.

A column is made whole, out of all rows at once: no row is ever an object of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sglang_probe.collect.read import CollectedRun
from sglang_probe.collect.records import Record
from sglang_probe.explain.model import RunFindings
from sglang_probe.report.material import Material
from sglang_probe.report.series import RunClock
from sglang_probe.report.tables.kinds import COUNT, WORD, Kind, array_of
from sglang_probe.timeline.model import Process, Run

SCHEMA: Final = "tables/1.0"
PIECE: Final = 1024
"""Processes whose rows are made at a time: some 100,000 rows, of a size that readers of Parquet like too."""


class Seat(NamedTuple):
    """A process with the run that it is of."""

    number: int
    run: Run
    process: Process


class Whose(NamedTuple):
    """What rows that belong to no process belong to."""

    run: Run | RunFindings


class Part(NamedTuple):
    """Objects that rows share, or that few rows have."""

    known: Sequence[Any]
    place: Any = None
    """Row by row, which of `known` it has (an Arrow array), NULL: none; None: there is one for each row, in order."""


def few(found: Iterable[Any]) -> Part:
    """Return, of an object or None a row, those that are there: most rows have no exception, and half no reading."""
    objects = list(found)
    numbers = count()
    place = [None if one is None else next(numbers) for one in objects]
    return Part([one for one in objects if one is not None], pa.array(place, pa.int32()))


class Whole:
    """What all tables draw on, computed once."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.runs = material.timeline.runs
        of_runs = ((run, process) for run in self.runs for process in run.processes)
        self.seats = [Seat(number, run, process) for number, (run, process) in enumerate(of_runs)]

    @cached_property
    def clocks(self) -> Mapping[int, RunClock]:
        """The clock of each run, by the run's `id`."""
        return {id(run): RunClock(run) for run in self.runs}

    @cached_property
    def records(self) -> Sequence[list[Record]]:
        """The events of each process; none of one that a log speaks of."""
        collected = {(run.run_id, run.launch): run for run in self.material.collected.runs}
        found = {id(run): collected.get((run.run_id, run.launch)) for run in self.runs if run.source != "log"}
        by_run = {name: _by_process(run) for name, run in found.items() if run is not None}
        return [
            by_run.get(id(seat.run), {}).pop((seat.process.host, seat.process.pid, seat.process.start_ticks), [])
            for seat in self.seats
        ]


def _by_process(run: CollectedRun) -> dict[tuple[Any, ...], list[Record]]:
    found: dict[tuple[Any, ...], list[Record]] = {}
    for member in run.members:
        key = member.process.key
        found.setdefault((key.host, key.pid, key.start_ticks), []).extend(member.process.records)
    return found


class Facts:
    """What a piece of a table is made of: some of the processes."""

    def __init__(self, whole: Whole, seats: Sequence[Seat]) -> None:
        self.whole = whole
        self.seats = seats

    @cached_property
    def begun_s(self) -> Sequence[Sequence[float | None]]:
        """Process by process, when each step began, in seconds since its run did."""
        clocks = self.whole.clocks
        return [
            [clocks[id(seat.run)].begin_s(seat.process, step) for step in seat.process.steps] for seat in self.seats
        ]

    def owners(self, sizes: Iterable[int]) -> Part:
        """Return whose the rows are, of a table that has so many for each process."""
        return Part(self.seats, pa.array(chain.from_iterable(map(repeat, count(), sizes)), pa.int32()))


def pieces_of(whole: Whole) -> list[Facts]:
    """Return the processes in pieces, one at least: memory that is used again costs less than fresh memory."""
    seats = whole.seats
    return [Facts(whole, seats[start : start + PIECE]) for start in range(0, max(len(seats), 1), PIECE)]


def owners(runs: Sequence[Run | RunFindings], sizes: Iterable[int]) -> Part:
    """Return whose the rows are, of a table that has so many for each run."""
    return Part([Whose(run) for run in runs], pa.array(chain.from_iterable(map(repeat, count(), sizes)), pa.int32()))


class Frame(NamedTuple):
    """The rows of one table, still as they are in the timeline."""

    rows: Sequence[Any]
    parts: Mapping[str, Part] = {}
    """What columns take that are not made from the rows themselves."""


Get = Callable[[Sequence[Any]], Iterable[Any]]


class Column(NamedTuple):
    """One column: the row of the table that is the program."""

    name: str
    kind: Kind
    meaning: str
    get: Get | str | None = None
    """How it is made of all objects at once; a text is the way to it from each, None its name."""
    required: bool = False
    """It is never NULL."""
    of: str | None = None
    """The part that it is made of; None: the rows."""

    @property
    def comment(self) -> str:
        """Return what it means, the unit first."""
        return f"{self.kind.unit}: {self.meaning}" if self.kind.unit else self.meaning

    def values(self, frame: Frame) -> Any:
        """Return the column as an Arrow array."""
        if self.of is None:
            return self._made(frame.rows)
        part = frame.parts[self.of]
        made = self._made(part.known)
        return made if part.place is None else made.take(part.place)

    def _made(self, objects: Sequence[Any]) -> Any:
        found = self.get(objects) if callable(self.get) else map(attrgetter(self.get or self.name), objects)
        return array_of(self.kind, found)


class Table(NamedTuple):
    """One table."""

    name: str
    meaning: str
    one_row: str
    """What one row is."""
    columns: Sequence[Column]
    frame: Callable[[Facts], Frame]

    @property
    def schema(self) -> Any:
        """Return its Arrow schema, every column with its meaning."""
        return pa.schema([_field(column) for column in self.columns], {"comment": self.meaning})

    def made(self, pieces: Sequence[Facts]) -> Iterator[Any]:
        """Yield the table in Arrow's columns, piece by piece; one that is about runs, or all that was read, in one."""
        of_processes = self.columns[: len(OWNER)] == OWNER
        for piece in pieces if of_processes else pieces[:1]:
            frame = self.frame(piece)
            yield pa.table([column.values(frame) for column in self.columns], schema=self.schema)


def _field(column: Column) -> Any:
    return pa.field(column.name, column.kind.arrow, nullable=not column.required, metadata={"comment": column.comment})


def each(function: Callable[[Any], Any]) -> Get:
    """Return what makes a column by asking every object."""
    return lambda objects: map(function, objects)


def of(part: str, *columns: Column) -> tuple[Column, ...]:
    """Return columns that are made of a part."""
    return tuple(column._replace(of=part) for column in columns)


RUN: Final = of(
    "owner",
    Column("run_id", WORD, "the run: its id, or the name of a log", "run.run_id", required=True),
    Column("launch", COUNT, "which launch of that id, from 0", "run.launch", required=True),
)
"""The key of what belongs to a run."""
OWNER: Final = (
    *RUN,
    *of(
        "owner",
        Column("process", COUNT, "number of the process in this report, from 0", "number", required=True),
        Column("host", WORD, "NULL in a log that does not name it", "process.host"),
        Column("pid", COUNT, "NULL in a log: SGLang prints none", "process.pid"),
        Column("label", WORD, "the rank, `DP0 TP1`; NULL for a process that is none", "process.label"),
    ),
)
"""The key of what belongs to a process, the same in every table: `USING (process)` joins them."""
