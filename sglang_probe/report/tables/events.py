"""The table of events: each as it stands in its file, with the reading of its own moment in columns.

`delta` and `outcome` follow from the other columns, `level` and `message` are for who reads the file: they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec

from sglang_probe.collect.read import CollectedRun
from sglang_probe.collect.records import Reading, Record, Span, object_of, reading_of
from sglang_probe.collect.repair import without_half_pairs
from sglang_probe.report.tables.kinds import BYTES, COUNT, JSON, SECONDS, TEXT, TIME, WORD, json_text
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Get, Table, each
from sglang_probe.timeline.values import text

_NO_READING: Final = Reading()
_NO_SPAN: Final = Span("")
_NOTHING: Final[dict[str, Any]] = {}


def _frame(facts: Facts) -> Frame:
    """Take the events process by process, in the order of the processes of the timeline."""
    runs = {(run.run_id, run.launch): run for run in facts.material.collected.runs}
    records: list[list[Record]] = []
    by_run: dict[tuple[str, int], dict[tuple[Any, ...], list[Record]]] = {}
    for seat in facts.seats:
        name = (seat.run.run_id, seat.run.launch)
        found = None if seat.run.source == "log" else runs.get(name)
        if name not in by_run:
            by_run[name] = {} if found is None else _by_process(found)
        process = seat.process
        records.append(by_run[name].pop((process.host, process.pid, process.start_ticks), []))
    rows = list(chain.from_iterable(records))
    readings = [reading_of(row.before if row.kind == "begin" else row.after) or _NO_READING for row in rows]
    told = {
        "readings": readings,
        "exceptions": [object_of(row.exception) or _NOTHING for row in rows],
        "spans": [row.span or _NO_SPAN for row in rows],
    }
    return Frame(rows, facts, facts.spread(map(len, records)), told)


def _by_process(run: CollectedRun) -> dict[tuple[Any, ...], list[Record]]:
    found: dict[tuple[Any, ...], list[Record]] = {}
    for member in run.members:
        key = member.process.key
        found.setdefault((key.host, key.pid, key.start_ticks), []).extend(member.process.records)
    return found


def _read(name: str) -> Get:
    return lambda frame: map(attrgetter(name), frame.beside["readings"])


def _listed(frame: Frame) -> Iterable[Any]:
    return [None if one.nvml_processes is None else json_text(one.nvml_processes) for one in frame.beside["readings"]]


def _span(name: str) -> Get:
    return lambda frame: [getattr(span, name) or None for span in frame.beside["spans"]]


def _raised(name: str) -> Get:
    return lambda frame: [text(one, name) if one else None for one in frame.beside["exceptions"]]


def _as_written(name: str) -> Get:
    """Return what takes an object's own text, which is JSON already; NULL where there is none."""
    return lambda frame: [_json(raw) for raw in map(attrgetter(name), frame.rows)]


def _json(raw: msgspec.Raw) -> str | None:
    whole = bytes(raw)
    if not whole or whole == b"null":
        return None
    if b"\\u" in whole:
        whole = without_half_pairs(whole)
    return whole.decode("utf-8", "replace")


def _reading(name: str, meaning: str) -> Column:
    return Column(name, BYTES, meaning, _read(name))


EVENTS: Final = Table(
    "events",
    "the events of the probe, as they stand in their files; none of a log",
    "one event (`process`, `seq` name it), in the order in which its process wrote it",
    (
        *OWNER,
        Column("seq", COUNT, "order within the process", required=True),
        Column("ts", TIME, "when it was written, to the microsecond; NULL where the file has no time"),
        Column("mono_ns", COUNT, "the same in nanoseconds since its host booted", required=True),
        Column("event", WORD, "its whole name", required=True),
        Column("role", WORD, "the phase; NULL on `sglang.probe.*`"),
        Column("kind", WORD, "begin, end, error or sample"),
        Column("worker", WORD, "target or draft"),
        Column("draft_index", COUNT, "which draft"),
        Column("span_id", WORD, "the call it is of: `steps.step_id`", _span("id")),
        Column("parent_id", WORD, "the call around that one", _span("parent")),
        Column(
            "duration_s",
            SECONDS,
            "how long the call took, on end and error",
            each(lambda row: _seconds(row.duration_ns)),
        ),
        _reading("device_total_bytes", "CUDA's total; this and the next: before on a begin, after on the others"),
        _reading("device_free_bytes", "free on the device for everybody"),
        _reading("torch_allocated_bytes", "in live tensors of the process"),
        _reading("torch_reserved_bytes", "held by torch's allocator, allocated or cached"),
        _reading("torch_peak_allocated_bytes", "the most that was allocated"),
        _reading("torch_peak_reserved_bytes", "the most that was reserved"),
        _reading("torch_inactive_split_bytes", "free parts of blocks in use"),
        _reading("torch_pinned_bytes", "page-locked host memory of torch's"),
        _reading("nvml_total_bytes", "the card's memory by NVML"),
        _reading("nvml_reserved_bytes", "reserved by driver and firmware"),
        _reading("nvml_used_bytes", "used by processes"),
        _reading("nvml_free_bytes", "free, by NVML"),
        _reading("amdsmi_total_bytes", "the card's memory by AMD's library"),
        _reading("amdsmi_used_bytes", "used, by AMD's library"),
        _reading("host_rss_bytes", "resident memory of the process"),
        _reading("host_available_bytes", "available on the host"),
        _reading("host_shm_used_bytes", "used in /dev/shm by everybody"),
        Column("nvml_processes", JSON, "NVML's list of processes; NULL where it was not read", _listed),
        Column("exception_id", WORD, "one id over all steps that it passed", _raised("id")),
        Column("exception_type", WORD, "its type", _raised("type")),
        Column("exception_message", TEXT, "what it says, in the innermost step alone", _raised("message")),
        Column("exception_raised_in", WORD, "module:function:line", _raised("raised_in")),
        Column("exception_stacktrace", TEXT, "its stack, in the innermost step alone", _raised("stacktrace")),
        Column("attributes", JSON, "what else it says, by event", _as_written("attributes")),
        Column("degraded", JSON, "what could not be read, and why", _as_written("degraded")),
        Column(
            "written_run_id",
            WORD,
            "run id in the file; another one where launches were joined",
            "run_id",
            required=True,
        ),
    ),
    _frame,
)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
