"""The rules of the Trace Event Format, as strict as its strictest reader: what Perfetto drops or moves fails here.

From the format's definition and from what Perfetto's importer does with JSON: a counter that is no number, a flow
without an id or a slice and an event without its time it drops; slices that overlap it puts on a track of their own.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]
Key = tuple[int, int]

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "cat", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
}
"""Keys of each phase beside `ph`; no others."""
METADATA = {"process_name": ("name", str), "process_labels": ("labels", str), "thread_name": ("name", str)}
METADATA_NUMBERS = {"process_sort_index": ("sort_index", int)}


class Trace:
    """A document that keeps the rules."""

    def __init__(self, text: str) -> None:
        """Check all rules; AssertionError where one is broken."""
        self.document = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
        self.events: list[Event] = self.document["traceEvents"]
        assert {"traceEvents", "displayTimeUnit", "otherData"} == set(self.document)
        assert self.document["displayTimeUnit"] in {"ms", "ns"}
        for event in self.events:
            _check_event(event)
        _check_order(self.events)
        _check_names(self.events)
        self.slices = _nested(self.of("X"))
        _check_flows(self.of("s"), self.of("f"), self.slices)

    def of(self, phase: str) -> list[Event]:
        """Return the events of one phase, in their order."""
        return [event for event in self.events if event["ph"] == phase]

    def processes(self) -> dict[int, str]:
        """Return the name of each process by its number, as sorted by the trace."""
        order = {one["pid"]: one["args"]["sort_index"] for one in self.of("M") if one["name"] == "process_sort_index"}
        names = {one["pid"]: one["args"]["name"] for one in self.of("M") if one["name"] == "process_name"}
        return dict(sorted(names.items(), key=lambda one: order[one[0]]))

    def number(self, name: str) -> int:
        """Return the number of the one process whose name begins so."""
        (found,) = [pid for pid, called in self.processes().items() if called.startswith(name)]
        return found


def nanoseconds(event: Event) -> tuple[int, int]:
    """Return when a slice begins and ends."""
    return _ns(event["ts"]), _ns(event["ts"]) + _ns(event["dur"])


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), "a key comes twice"
    return found


def _check_event(event: Event) -> None:
    assert event["ph"] in REQUIRED
    assert {"ph", *REQUIRED[event["ph"]]} == set(event), event
    for key in ("pid", "tid"):
        assert type(event[key]) is int and 0 < event[key] < 1 << 32, "0 is the idle task, more is cut off"
    for key in {"ts", "dur"} & set(event):
        assert type(event[key]) in {int, float} and math.isfinite(event[key]) and event[key] >= 0
    for text in (event["name"], event.get("cat", "x")):
        assert isinstance(text, str) and text and text.isprintable()
    args = event.get("args", {})
    assert isinstance(args, dict)
    if event["ph"] == "C":
        assert args
        assert all(type(value) in {int, float} and math.isfinite(value) for value in args.values())
    if event["ph"] == "i":
        assert event["s"] in {"t", "p", "g"}
    if event["ph"] == "M":
        key, kind = (METADATA | METADATA_NUMBERS)[event["name"]]
        assert {key} == set(args) and type(args[key]) is kind and args[key] != ""


def _check_order(events: list[Event]) -> None:
    """Perfetto sorts by time and keeps the order of what is at one time."""
    times = [event.get("ts", -1) for event in events]
    assert sorted(times) == times


def _check_names(events: Iterable[Event]) -> None:
    """Each process and each thread has one name, and no thread is of two processes."""
    processes: dict[int, int] = defaultdict(int)
    threads: dict[Key, int] = defaultdict(int)
    owners: dict[int, int] = {}
    used: set[Key] = set()
    for event in events:
        key = event["pid"], event["tid"]
        used.add(key)
        assert owners.setdefault(event["tid"], event["pid"]) == event["pid"]
        if event["ph"] == "M":
            processes[event["pid"]] += event["name"] == "process_name"
            threads[key] += event["name"] == "thread_name"
    assert {pid for pid, _ in used} == set(processes) and set(processes.values()) == {1}
    assert used == set(threads) and set(threads.values()) == {1}


def _nested(slices: list[Event]) -> dict[Key, list[Event]]:
    """Return the slices of each track; each lies wholly inside the one that is open when it begins, or after it."""
    tracks: dict[Key, list[Event]] = defaultdict(list)
    for event in slices:
        tracks[event["pid"], event["tid"]].append(event)
    for found in tracks.values():
        still_open: list[int] = []
        for event in found:
            begin, end = nanoseconds(event)
            while still_open and still_open[-1] <= begin and not begin == end == still_open[-1]:
                still_open.pop()
            assert not still_open or end <= still_open[-1], f"{event} overlaps the slice around it"
            still_open.append(end)
    return dict(tracks)


def _check_flows(starts: list[Event], ends: list[Event], slices: dict[Key, list[Event]]) -> None:
    by_id = {start["id"]: start for start in starts}
    assert len(by_id) == len(starts) == len(ends)
    assert set(by_id) == {end["id"] for end in ends}
    for end in ends:
        start = by_id[end["id"]]
        assert end["bp"] == "e"  # else Perfetto binds it to the next slice
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ts"] <= end["ts"]
        for one in (start, end):
            at = _ns(one["ts"])
            covering = [nanoseconds(other) for other in slices.get((one["pid"], one["tid"]), [])]
            assert any(begin <= at <= last for begin, last in covering), f"{one} is bound to no slice"
