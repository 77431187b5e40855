"""The table of events: each as it stands in its file, with the reading of its own moment in columns.

What follows from other columns (`delta`, `outcome`) or is for who reads the file (`level`, `message`) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from sglang_probe.collect.records import Part as Decoder
from sglang_probe.collect.records import Record, reading_of
from sglang_probe.collect.repair import without_half_pairs
from sglang_probe.report.tables.kinds import BYTES, COUNT, JSON, NANOSECONDS, SECONDS, TEXT, TIME, WORD, WRITTEN
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Get, Table, few, of
from sglang_probe.timeline.model import Failure

_raised = Decoder(Failure)


def _frame(facts: Facts) -> Frame:
    records = [facts.whole.records[seat.number] for seat in facts.seats]
    rows = list(chain.from_iterable(records))
    parts = {
        "owner": facts.owners(map(len, records)),
        "reading": few(reading_of(row.before if row.kind == "begin" else row.after) for row in rows),
        "exception": few(_raised(row.exception) for row in rows),
        "span": few(row.span for row in rows),
    }
    return Frame(rows, parts)


def _durations(rows: Sequence[Record]) -> Iterable[float | None]:
    return (None if row.duration_ns is None else row.duration_ns / 1e9 for row in rows)


def _as_written(name: str) -> Get:
    """Return what takes an object's own text, which is JSON already; NULL where there is nothing in it."""
    get = attrgetter(name)

    def texts(rows: Sequence[Record]) -> Iterable[str | None]:
        written = (str(raw, "utf-8", "replace") for raw in map(get, rows))
        return (None if text in _NONE else _whole_pairs(text) if "\\u" in text else text for text in written)

    return texts


_NONE: Final = ("", "null", "[]")


def _whole_pairs(text: str) -> str:
    return without_half_pairs(text.encode()).decode()


EVENTS: Final = Table(
    "events",
    "the events of the probe, as they stand in their files; none of a log. Those of a launcher that made several "
    "launches stand in each of them, so count over launches distinct `host`, `pid`, `seq`",
    "one event (`process`, `seq` name it), in the order in which its process wrote it",
    (
        *OWNER,
        Column("seq", COUNT, "order within the process", required=True),
        Column("ts", TIME, "when it was written, to the microsecond; NULL where the file has no time"),
        Column("mono_ns", NANOSECONDS, "the same since its host booted", required=True),
        Column("event", WORD, "its whole name", required=True),
        Column("role", WORD, "the phase; NULL on `sglang.probe.*`"),
        Column("kind", WORD, "begin, end, error or sample"),
        Column("worker", WORD, "target or draft"),
        Column("draft_index", COUNT, "which draft"),
        *of(
            "span",
            Column("span_id", WORD, "the call it is of: `steps.step_id`", "id"),
            Column("parent_id", WORD, "the call around that one", "parent"),
        ),
        Column("duration_s", SECONDS, "how long the call took, on end and error", _durations),
        *of(
            "reading",
            Column("device_total_bytes", BYTES, "CUDA's total; as all readings: before on a begin, else after"),
            Column("device_free_bytes", BYTES, "free on the device for everybody"),
            Column("torch_allocated_bytes", BYTES, "in live tensors of the process"),
            Column("torch_reserved_bytes", BYTES, "held by torch's allocator, allocated or cached"),
            Column("torch_peak_allocated_bytes", BYTES, "the most that was allocated"),
            Column("torch_peak_reserved_bytes", BYTES, "the most that was reserved"),
            Column("torch_inactive_split_bytes", BYTES, "free parts of blocks in use"),
            Column("torch_pinned_bytes", BYTES, "page-locked host memory of torch's"),
            Column("nvml_total_bytes", BYTES, "the card's memory by NVML"),
            Column("nvml_reserved_bytes", BYTES, "reserved by driver and firmware"),
            Column("nvml_used_bytes", BYTES, "used by processes"),
            Column("nvml_free_bytes", BYTES, "free, by NVML"),
            Column("amdsmi_total_bytes", BYTES, "the card's memory by AMD's library"),
            Column("amdsmi_used_bytes", BYTES, "used, by AMD's library"),
            Column("host_rss_bytes", BYTES, "resident memory of the process"),
            Column("host_available_bytes", BYTES, "available on the host"),
            Column("host_shm_used_bytes", BYTES, "used in /dev/shm by everybody"),
            Column("nvml_processes", JSON, "NVML's list of processes; NULL where it was not read"),
            Column("amdsmi_processes", JSON, "the list by AMD's library"),
        ),
        *of(
            "exception",
            Column("exception_id", WORD, "the same on all events that it passed", "id"),
            Column("exception_type", WORD, "its type", "type"),
            Column("exception_message", TEXT, "what it says, in the innermost call alone", "message"),
            Column("exception_raised_in", WORD, "module:function:line", "raised_in"),
            Column("exception_stacktrace", TEXT, "its stack, in the innermost call alone", "stacktrace"),
        ),
        Column("attributes", WRITTEN, "what else it says, by event", _as_written("attributes")),
        Column("degraded", WRITTEN, "what could not be read, and why; NULL: nothing", _as_written("degraded")),
        Column("written_run_id", WORD, "its own run id: another one where launches were joined", "run_id", True),
    ),
    _frame,
)
