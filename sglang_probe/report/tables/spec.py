"""What a table is: a row a column, from which it is built, stored, described and checked; and what its rows come from.

A column is made whole, out of all rows at once: no row is ever an object of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sglang_probe.report.material import Material
from sglang_probe.report.series import RunClock
from sglang_probe.report.tables.kinds import (
    COUNT,
    JSON,
    LOCAL_TIME,
    TIME,
    WORD,
    Kind,
    array_of,
    json_text,
    local_times_of,
    times_of,
)
from sglang_probe.timeline.model import Process, Run

SCHEMA: Final = "tables/1.0"


class Seat(NamedTuple):
    """A process with the run that it is of."""

    run: Run
    process: Process


class Facts:
    """What all tables draw on, computed once."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.runs = material.timeline.runs
        self.seats = [Seat(run, process) for run in self.runs for process in run.processes]
        self.keys: Mapping[str, Any] = {
            "run_id": array_of(WORD, [seat.run.run_id for seat in self.seats]),
            "launch": array_of(COUNT, [seat.run.launch for seat in self.seats]),
            "process": array_of(COUNT, range(len(self.seats))),
            "host": array_of(WORD, [seat.process.host for seat in self.seats]),
            "pid": array_of(COUNT, [seat.process.pid for seat in self.seats]),
            "label": array_of(WORD, [seat.process.label for seat in self.seats]),
        }

    @cached_property
    def begun_s(self) -> Sequence[Sequence[float | None]]:
        """Process by process, when each step began, in seconds since its run did."""
        clocks = {id(run): RunClock(run) for run in self.runs}
        return [
            [clocks[id(seat.run)].begin_s(seat.process, step) for step in seat.process.steps] for seat in self.seats
        ]

    def spread(self, sizes: Iterable[int]) -> Any:
        """Return, for so many rows of each process, the number of the process of each row."""
        return pa.array(chain.from_iterable(map(repeat, range(len(self.seats)), sizes)), pa.int32())


class Frame(NamedTuple):
    """The rows of one table, still as they are in the timeline."""

    rows: Sequence[Any]
    facts: Facts
    owners: Any = None
    """Number of the process of each row; None where rows belong to a run, or to none."""
    beside: Mapping[str, Any] = {}
    """What else was computed row by row."""


Get = Callable[[Frame], Iterable[Any]]


class Column(NamedTuple):
    """One column: the row of the table that is the program."""

    name: str
    kind: Kind
    meaning: str
    get: Get | str | None = None
    """How it is made; a text is the way to it from a row's object, None its name."""
    required: bool = False
    """It is never NULL."""

    def values(self, frame: Frame) -> Any:
        """Return the column as an Arrow array."""
        if callable(self.get):
            return array_of(self.kind, self.get(frame))
        found = map(attrgetter(self.get or self.name), frame.rows)
        if self.kind is TIME:
            return times_of(found)
        if self.kind is LOCAL_TIME:
            return local_times_of(found)
        return array_of(self.kind, map(json_text, found) if self.kind is JSON else found)


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
        return pa.schema([_field(column) for column in self.columns], {"comment": self.meaning, "schema": SCHEMA})

    def made(self, facts: Facts) -> Any:
        """Return the table in Arrow's columns."""
        frame = self.frame(facts)
        return pa.table([column.values(frame) for column in self.columns], schema=self.schema)


def _field(column: Column) -> Any:
    about = {"comment": column.meaning, "unit": column.kind.name}
    return pa.field(column.name, column.kind.arrow, nullable=not column.required, metadata=about)


def each(function: Callable[[Any], Any]) -> Get:
    """Return what makes a column by asking every row."""
    return lambda frame: map(function, frame.rows)


def beside(name: str) -> Get:
    """Return what takes a column that was computed with the rows."""

    def get(frame: Frame) -> Iterable[Any]:
        found: Iterable[Any] = frame.beside[name]
        return found

    return get


def _owned(name: str) -> Get:
    def get(frame: Frame) -> Iterable[Any]:
        found: Iterable[Any] = frame.facts.keys[name].take(frame.owners)
        return found

    return get


RUN: Final = (
    Column("run_id", WORD, "the run: its id, or the name of a log", "run.run_id", required=True),
    Column("launch", COUNT, "which launch of that id, from 0", "run.launch", required=True),
)
"""The key of what belongs to a run: rows have a `run`."""
OWNER: Final = (
    *(column._replace(get=_owned(column.name)) for column in RUN),
    Column("process", COUNT, "number of the process in this report, from 0", _owned("process"), required=True),
    Column("host", WORD, "NULL in a log that does not name it", _owned("host")),
    Column("pid", COUNT, "NULL in a log: SGLang prints none", _owned("pid")),
    Column("label", WORD, "the rank, `DP0 TP1`; NULL for a process that is none", _owned("label")),
)
"""The key of what belongs to a process, the same in every table: `USING (process)` joins them."""
