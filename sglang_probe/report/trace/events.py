"""The kinds of events of the Trace Event Format, as `chrome://tracing` made it and Perfetto reads it.

`ph` says which: X a slice, C a counter, i an instant, s and f the ends of a flow, M a name. `ts` and `dur` are
microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sglang_probe.figures import UNKNOWN

Event = dict[str, Any]
US: Final = 1000
"""Nanoseconds."""


class Track(NamedTuple):
    """Where an event is drawn: a row of a process."""

    pid: int
    tid: int


def named(track: Track, what: str, value: object) -> Event:
    """`process_name`, `process_labels`, `process_sort_index` or `thread_name`."""
    key = {"process_labels": "labels", "process_sort_index": "sort_index"}.get(what, "name")
    told = UNKNOWN if value == "" else value  # Perfetto passes over an empty name
    return {"ph": "M", "name": what, "pid": track.pid, "tid": track.tid, "args": {key: told}}


def sliced(track: Track, name: str, kind: str, begin_ns: int, end_ns: int, args: Mapping[str, object]) -> Event:
    """Something that took time."""
    length = (end_ns - begin_ns) / US
    return {"ph": "X", **_at(track, name, kind, begin_ns), "dur": length, "args": args}


def counted(track: Track, name: str, at_ns: int, values: Mapping[str, int]) -> Event:
    """What each of several figures is from now on; they are stacked."""
    return {"ph": "C", **_at(track, name, "memory", at_ns), "args": values}


def instant(track: Track, name: str, kind: str, at_ns: int, args: Mapping[str, object]) -> Event:
    """A moment on one row."""
    return {"ph": "i", "s": "t", **_at(track, name, kind, at_ns), "args": args}


def flow(number: int, name: str, source: tuple[Track, int], target: tuple[Track, int]) -> tuple[Event, Event]:
    """An arrow from the slice that is on one track at a time to the slice that is on another at another."""
    start = {"ph": "s", "id": number, **_at(source[0], name, "flow", source[1])}
    end = {"ph": "f", "bp": "e", "id": number, **_at(target[0], name, "flow", target[1])}
    return start, end


def _at(track: Track, name: str, kind: str, at_ns: int) -> Event:
    ids = {"pid": track.pid, "tid": track.tid}
    return {"name": name or UNKNOWN, "cat": kind or UNKNOWN, **ids, "ts": at_ns / US}
