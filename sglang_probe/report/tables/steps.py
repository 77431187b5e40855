"""The table of steps: one call of a hooked function, what it took and how long."""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from sglang_probe.report.tables.kinds import (
    BYTES,
    COUNT,
    JSON,
    LOCAL_TIME,
    NANOSECONDS,
    SECONDS,
    TEXT,
    TIME,
    WORD,
    WORDS,
)
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Part, Table, each, few, of
from sglang_probe.timeline.model import Step


class Placed(NamedTuple):
    """A step, where it stands in its process, and when it began."""

    number: int
    step: Step
    begin_s: float | None


def placed(facts: Facts) -> list[list[Placed]]:
    """Return the steps, process by process."""
    return [
        list(map(Placed, range(len(begun)), seat.process.steps, begun))
        for seat, begun in zip(facts.seats, facts.begun_s, strict=True)
    ]


def end_s(one: Placed) -> float | None:
    """Return when a step ended, in seconds since the run began; None where it did not."""
    return None if one.begin_s is None or one.step.duration_s is None else one.begin_s + one.step.duration_s


def _frame(facts: Facts) -> Frame:
    found = placed(facts)
    all_placed = list(chain.from_iterable(found))
    rows = [one.step for one in all_placed]
    parts = {
        "owner": facts.owners(map(len, found)),
        "placed": Part(all_placed),
        "after": few(step.after for step in rows),
        "failure": few(step.failure for step in rows),
    }
    return Frame(rows, parts)


STEPS: Final = Table(
    "steps",
    "what each rank did on its way to ready, what it took and how long",
    "one call of a hooked function (`process`, `step_index` name it), or what a log tells of one",
    (
        *OWNER,
        *of("placed", Column("step_index", COUNT, "its place in the process, by its begin, from 0", "number", True)),
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
        Column("mono_ns", NANOSECONDS, "the same since its host booted"),
        *of(
            "placed",
            Column("begin_s", SECONDS, "when it began, since the run did, hosts' clocks set"),
            Column("end_s", SECONDS, "when it ended, on the same scale; NULL where it did not", each(end_s)),
        ),
        Column("duration_s", SECONDS, "how long it took; NULL where it did not end, or nothing says so"),
        Column("free_before_bytes", BYTES, "free on the device before it"),
        Column("free_bytes", BYTES, "free on the device after it"),
        Column("delta_bytes", BYTES, "after - before, of what is free"),
        Column("self_delta_bytes", BYTES, "the same without the steps inside it: only this one may be summed"),
        Column("cost_bytes", BYTES, "before - after; negative: memory was given back"),
        Column("null_reason", TEXT, "why one of these is NULL"),
        Column("self_includes", WORDS, "ids of steps inside it whose unknown cost is in its own", required=True),
        Column("precision_bytes", BYTES, "how far off a log's figures may be; NULL: exact"),
        *of(
            "after",
            Column("torch_allocated_bytes", BYTES, "in torch's live tensors, when it ended"),
            Column("torch_reserved_bytes", BYTES, "allocated or cached by torch, when it ended"),
            Column("torch_peak_allocated_bytes", BYTES, "the most that torch had allocated by then"),
            Column("host_rss_bytes", BYTES, "resident memory of the process, when it ended"),
        ),
        *of(
            "failure",
            Column("failure_id", WORD, "the exception that passed through it, the same id in all that it passed", "id"),
            Column("failure_type", WORD, "its type", "type"),
            Column("failure_message", TEXT, "what it says, in the innermost step alone", "message"),
            Column("failure_raised_in", WORD, "module:function:line", "raised_in"),
        ),
        Column("attributes", JSON, "what else the events say, by phase", required=True),
        Column("degraded", JSON, "what could not be read", required=True),
    ),
    _frame,
)
