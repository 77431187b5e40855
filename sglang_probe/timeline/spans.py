"""A process's records -> its steps: begin and end of a span become one, and each knows what it cost by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sglang_probe.collect.records import Part, Reading, Record, attributes_of, counted_attributes, is_broken, reading_of
from sglang_probe.timeline.deltas import Shares, shares
from sglang_probe.timeline.model import Degradation, Failure, Sample, State, Step

_failure_of = Part(Failure)
degradations_of: Part[tuple[Degradation, ...]] = Part(tuple[Degradation, ...])

READER = "reader"
"""Source of what this side could not read."""
ATTRIBUTES = "attributes"
_NO_END = "the step has no end"
_NO_READING = "the device's free memory was not read"
_BEGIN_LOST = "its begin line is lost"


class Draft(msgspec.Struct):
    """A step, and what of its events the steps of other processes are judged by."""

    step: Step
    began_seq: int | None
    closed_seq: int | None
    closed_ns: int | None
    """mono_ns of its end or error."""
    closed_ts: str | None


class _Readings(msgspec.Struct, gc=False):
    """What the device said before and after a span."""

    before: Reading | None
    after: Reading | None
    delta: int | None
    """Of the device's free memory."""
    broken: tuple[str, ...]
    """Readings that are there, but not as the contract has them."""


class _Span(msgspec.Struct, gc=False):
    """The events of one span: one of the two may be missing."""

    id: str
    parent: str | None
    last: Record
    """The end or error; the begin where there is none."""
    begin: Record | None = None
    close: Record | None = None


def drafts_of(records: Iterable[Record]) -> list[Draft]:
    """Return the steps in the order in which they began. An unfinished one is `open`: its run decides what it is."""
    spans = _spans(records)
    begins = _begin_times(spans)
    parents = {span.id: span.parent for span in spans.values()}
    readings = {span.id: _readings(span) for span in spans.values()}
    shared = shares(parents, {name: read.delta for name, read in readings.items()})
    ordered = sorted(spans.values(), key=lambda span: (begins[span.id], shared[span.id].depth, _seq(span)))
    return [_draft(span, begins[span.id], readings[span.id], shared[span.id]) for span in ordered]


def samples_of(records: Iterable[Record]) -> tuple[Sample, ...]:
    """Return the readings of single moments."""
    return tuple(_sample(record) for record in records if record.kind == "sample" and record.role is not None)


def _spans(records: Iterable[Record]) -> dict[str, _Span]:
    spans: dict[str, _Span] = {}
    for record in records:
        said = record.span
        if said is None or record.role is None or record.kind not in {"begin", "end", "error"}:
            continue
        span = spans.get(said.id)
        if span is None:
            span = spans[said.id] = _Span(said.id, said.parent, record)
        if record.kind == "begin":
            span.begin = span.begin or record
        elif span.close is None:
            span.close = span.last = record
            span.parent = said.parent
    return spans


def _seq(span: _Span) -> int:
    return (span.begin or span.last).seq


def _begin_times(spans: dict[str, _Span]) -> dict[str, int]:
    """Return when each span began (mono_ns); one whose begin line is lost began before what is inside it."""
    times = {span.id: span.begin.mono_ns for span in spans.values() if span.begin is not None}
    if len(times) == len(spans):
        return times
    for span in spans.values():
        if span.begin is None:
            times[span.id] = span.last.mono_ns - (span.last.duration_ns or 0)
    for span in sorted(spans.values(), key=_seq, reverse=True):
        outer = spans.get(span.parent or "")
        if outer is not None and outer.begin is None:
            times[outer.id] = min(times[outer.id], times[span.id])
    return times


def _readings(span: _Span) -> _Readings:
    """Decode a span's readings. The end repeats the one from before; without an end it is the begin's."""
    begin, close = span.begin, span.close
    raw_before = close.before if close is not None else begin.before if begin is not None else msgspec.Raw()
    raw_after = close.after if close is not None else msgspec.Raw()
    before, after = reading_of(raw_before), reading_of(raw_after)
    broken: tuple[str, ...] = ()
    if before is None or after is None:
        pairs = (("before", raw_before, before), ("after", raw_after, after))
        broken = tuple(name for name, raw, value in pairs if is_broken(raw, value))
    if before is None and begin is not None:
        before = reading_of(begin.before)
    free_before = None if before is None else before.device_free_bytes
    free_after = None if after is None else after.device_free_bytes
    delta = None if free_before is None or free_after is None else free_after - free_before
    return _Readings(before, after, delta, broken)


def _draft(span: _Span, began: int, read: _Readings, share: Shares) -> Draft:
    begin, close = span.begin, span.close
    last = span.last
    attributes, refused = _attributes(begin, close)
    degraded = _degraded(begin, close, read.broken + (ATTRIBUTES,) * refused)
    state: State = "open" if close is None else "error" if close.kind == "error" else "ok"
    step = Step(
        id=span.id,
        parent=span.parent,
        phase=last.role or "",
        detail=detail_of(last.role, attributes),
        depth=share.depth,
        worker=last.worker,
        draft_index=last.draft_index,
        ts=None if begin is None else begin.ts,
        duration_s=_duration(begin, close),
        free_before_bytes=None if read.before is None else read.before.device_free_bytes,
        free_bytes=None if read.after is None else read.after.device_free_bytes,
        delta_bytes=read.delta,
        self_delta_bytes=share.self_delta,
        cost_bytes=None if read.delta is None else -read.delta,
        null_reason=None if read.delta is not None else _why_null(close, degraded),
        self_includes=share.includes,
        state=state,
        state_reason=_BEGIN_LOST if begin is None else None,
        failure=_failure_of(close.exception) if close is not None else None,
        attributes=attributes,
        before=read.before,
        after=read.after,
        degraded=degraded,
        mono_ns=began,
    )
    return Draft(
        step=step,
        began_seq=None if begin is None else begin.seq,
        closed_seq=None if close is None else close.seq,
        closed_ns=None if close is None else close.mono_ns,
        closed_ts=None if close is None else close.ts,
    )


def _attributes(begin: Record | None, close: Record | None) -> tuple[dict[str, Any], int]:
    """Return what a span says of itself, and how many numbers of it could not be read."""
    if close is None:
        return ({}, 0) if begin is None else counted_attributes(begin)
    said, refused = counted_attributes(close)
    if close.kind != "error" or begin is None:
        return said, refused
    first, refused_first = counted_attributes(begin)  # an error may know less than its begin did
    return first | {key: value for key, value in said.items() if value is not None}, refused + refused_first


def _degraded(begin: Record | None, close: Record | None, broken: tuple[str, ...]) -> tuple[Degradation, ...]:
    first = () if begin is None else degradations_of(begin.degraded) or ()
    last = () if close is None else degradations_of(close.degraded) or ()
    return first + last + tuple(map(unreadable, broken))


def unreadable(part: str) -> Degradation:
    """Return what the reader says of a part of an event that is not as the contract has it."""
    return Degradation(source=READER, reason="unreadable_part", detail=part)


def _duration(begin: Record | None, close: Record | None) -> float | None:
    """Return seconds, by the monotonic clock alone."""
    if close is None:
        return None
    if close.duration_ns is not None:
        return close.duration_ns / 1e9
    return None if begin is None else (close.mono_ns - begin.mono_ns) / 1e9


def _why_null(close: Record | None, degraded: tuple[Degradation, ...]) -> str:
    if close is None:
        return _NO_END
    about_free = [one for one in degraded if not one.source.startswith("nvml")]  # what is free is torch's to say
    reasons = [f"{one.source}: {one.reason}" + (f" ({one.detail})" if one.detail else "") for one in about_free]
    return "; ".join(dict.fromkeys(reasons)) or _NO_READING


def _sample(record: Record) -> Sample:
    attributes = attributes_of(record)
    reading = reading_of(record.after)
    span = record.span
    return Sample(
        id=None if span is None else span.id,
        parent=None if span is None else span.parent,
        phase=record.role or "",
        detail=detail_of(record.role, attributes),
        worker=record.worker,
        draft_index=record.draft_index,
        ts=record.ts,
        free_bytes=None if reading is None else reading.device_free_bytes,
        attributes=attributes,
        after=reading,
        seq=record.seq,
    )


def detail_of(role: str | None, attributes: dict[str, Any]) -> str | None:
    """Return what tells a step from its siblings: the pool, graph, communicator, buffer, model or backend."""
    words = _TELLS.get(role or "", ())
    if role == "allreduce.buffers" and not attributes.get("buffer_kind"):
        words = ("class",)
    elif role == "weights.load" and attributes.get("part") == "lora":
        words = ("part",)
    return " ".join([str(attributes[word]) for word in words if attributes.get(word) is not None]) or None


_TELLS: Final = {
    "dist.communicator": ("communicator", "group"),
    "allreduce.buffers": ("buffer_kind",),
    "weights.load": ("model_class",),
    "kv.pool": ("pool",),
    "attention.init": ("backend",),
    "graph.capture": ("graph",),
}
