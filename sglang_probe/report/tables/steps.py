"""The table of steps: one call of a hooked function, what it took and how long."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from sglang_probe.collect.records import Reading
from sglang_probe.report.tables.kinds import BYTES, COUNT, JSON, LOCAL_TIME, SECONDS, TEXT, TIME, WORD, WORDS
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Get, Table
from sglang_probe.timeline.model import Failure

_NO_READING: Final = Reading()
_NO_FAILURE: Final = Failure()


def _frame(facts: Facts) -> Frame:
    sizes = [len(seat.process.steps) for seat in facts.seats]
    return Frame([step for seat in facts.seats for step in seat.process.steps], facts, facts.spread(sizes))


def _index(frame: Frame) -> Iterable[Any]:
    return chain.from_iterable(range(len(seat.process.steps)) for seat in frame.facts.seats)


def _begun(frame: Frame) -> Iterable[Any]:
    return chain.from_iterable(frame.facts.begun_s)


def _ended(frame: Frame) -> Iterable[Any]:
    return [
        None if begun is None or step.duration_s is None else begun + step.duration_s
        for begun, step in zip(_begun(frame), frame.rows, strict=True)
    ]


def _read_after(name: str) -> Get:
    get = attrgetter(name)
    return lambda frame: [get(step.after or _NO_READING) for step in frame.rows]


def _failed(name: str) -> Get:
    get = attrgetter(name)
    return lambda frame: [get(step.failure or _NO_FAILURE) for step in frame.rows]


STEPS: Final = Table(
    "steps",
    "what each rank did on its way to ready, what it took and how long",
    "one call of a hooked function (`process`, `step_index` name it), or what a log tells of one",
    (
        *OWNER,
        Column(
            "step_index",
            COUNT,
            "its place among the process's steps, in the order they began, from 0",
            _index,
            required=True,
        ),
        Column("step_id", WORD, "its id", "id", required=True),
        Column("parent_id", WORD, "id of the step that it is inside of", "parent"),
        Column("depth", COUNT, "how many steps it is inside of", required=True),
        Column("phase", WORD, "the role: weights.load, kv.pool, ...", required=True),
        Column("detail", WORD, "the pool, graph, communicator or buffer"),
        Column("worker", WORD, "target or draft; NULL where it is for neither"),
        Column("draft_index", COUNT, "which draft"),
        Column("state", WORD, "ok, error, died, interrupted or open", required=True),
        Column("state_reason", TEXT, "why, where it did not end well"),
        Column("ts", TIME, "when it began, by its host's clock"),
        Column("local_time", LOCAL_TIME, "the same in a log that names no zone, by the server's clock"),
        Column("mono_ns", COUNT, "the same in nanoseconds since its host booted"),
        Column("begin_s", SECONDS, "when it began, since the run did, hosts' clocks set", _begun),
        Column("end_s", SECONDS, "when it ended, on the same scale; NULL where it did not", _ended),
        Column("duration_s", SECONDS, "how long it took; NULL where it did not end, or nothing says so"),
        Column("free_before_bytes", BYTES, "free on the device before it"),
        Column("free_bytes", BYTES, "free on the device after it"),
        Column("delta_bytes", BYTES, "after - before, of what is free"),
        Column("self_delta_bytes", BYTES, "the same without the steps inside it: only this one may be summed"),
        Column("cost_bytes", BYTES, "before - after; negative: memory was given back"),
        Column("null_reason", TEXT, "why one of these is NULL"),
        Column(
            "self_includes", WORDS, "ids of steps inside it whose cost is unknown, and so in its own", required=True
        ),
        Column("precision_bytes", BYTES, "how far off a log's figures may be; NULL: exact"),
        Column("torch_allocated_bytes", BYTES, "torch's, when it ended", _read_after("torch_allocated_bytes")),
        Column(
            "torch_reserved_bytes",
            BYTES,
            "allocated or cached by torch, when it ended",
            _read_after("torch_reserved_bytes"),
        ),
        Column(
            "torch_peak_allocated_bytes",
            BYTES,
            "the most that torch had allocated",
            _read_after("torch_peak_allocated_bytes"),
        ),
        Column("host_rss_bytes", BYTES, "resident memory of the process, when it ended", _read_after("host_rss_bytes")),
        Column(
            "failure_id", WORD, "the exception that passed through it: one id over all steps it passed", _failed("id")
        ),
        Column("failure_type", WORD, "its type", _failed("type")),
        Column("failure_message", TEXT, "what it says, in the innermost step alone", _failed("message")),
        Column("failure_raised_in", WORD, "module:function:line", _failed("raised_in")),
        Column("attributes", JSON, "what else the events say, by phase", required=True),
        Column("degraded", JSON, "what could not be read", required=True),
    ),
    _frame,
)
