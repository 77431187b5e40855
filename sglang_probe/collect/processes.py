"""Records -> processes: each with its events once and in the order of `seq`, whatever order and copies they came in."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import groupby
from typing import NamedTuple

import msgspec

from sglang_probe.collect.lines import Batch
from sglang_probe.collect.parts import merge_parts
from sglang_probe.collect.records import Record
from sglang_probe.collect.report import Tally
from sglang_probe.events import names
from sglang_probe.events.attributes import BY_EVENT

KNOWN_EVENTS = frozenset(BY_EVENT) | {
    names.memory_event(role, kind) for role in names.ROLES for kind in ("begin", "end", "error", "sample")
}


class ProcessKey(NamedTuple):
    """What names a process for ever (a pid alone is reused), within one run id."""

    run_id: str
    host: str
    pid: int
    start_ticks: int | None


class ProcessEvents(msgspec.Struct, kw_only=True):
    """One process's events."""

    key: ProcessKey
    boot_id: str | None
    records: list[Record]
    files: tuple[str, ...]
    lost: int = 0
    """Numbers of `seq` that no line has."""
    torn_tail: bool = False


class _Segment(NamedTuple):
    """Where a stretch of a process's records came from: number of the first one, its file and line."""

    start: int
    file: str
    line: int


class _Pile:
    """A process's records as they come."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.segments: list[_Segment] = []
        self.torn_tail = False

    def add(self, records: list[Record], file: str, line: int) -> None:
        index = len(self.records)
        last = self.segments[-1] if self.segments else None
        if last is None or last.file != file or last.line + index - last.start != line:
            self.segments.append(_Segment(index, file, line))
        self.records += records

    def place(self, index: int) -> tuple[str, int]:
        """Return file and line of the record that came `index`-th."""
        segment = self.segments[bisect_right(self.segments, index, key=lambda segment: segment.start) - 1]
        return segment.file, segment.line + index - segment.start


class Gatherer:
    """Sorts batches into processes."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._piles: defaultdict[ProcessKey, _Pile] = defaultdict(_Pile)
        self._last_of: dict[str, ProcessKey] = {}

    def add(self, batch: Batch) -> None:
        """Take the records of one batch."""
        keys = {
            (record.run_id, record.host, record.pid, None if record.proc is None else record.proc.start_ticks)
            for record in batch.records
        }
        if len(keys) == 1:  # as it nearly always is: a file is one process's
            self._take(ProcessKey(*keys.pop()), batch.records, batch.file, batch.first_line)
            return
        line = batch.first_line
        for key, group in groupby(batch.records, _key):
            records = list(group)
            self._take(key, records, batch.file, line)
            line += len(records)

    def mark_torn(self, file: str) -> None:
        """Say that the last process seen in `file` has its last line cut off."""
        if file in self._last_of:
            self._piles[self._last_of[file]].torn_tail = True

    def processes(self) -> list[ProcessEvents]:
        """Return what was gathered, ordered by identity. Call it once, when all is in."""
        self._adopt_nameless()
        found = [self._process(key, pile) for key, pile in self._piles.items()]
        return sorted(found, key=lambda process: sortable(process.key))

    def _take(self, key: ProcessKey, records: list[Record], file: str, line: int) -> None:
        self._piles[key].add(records, file, line)
        self._last_of[file] = key

    def _adopt_nameless(self) -> None:
        """Give records without a start time to the one process that they can belong to."""
        named: defaultdict[ProcessKey, list[ProcessKey]] = defaultdict(list)
        for key in self._piles:
            if key.start_ticks is not None:
                named[key._replace(start_ticks=None)].append(key)
        for nameless, owners in named.items():
            if len(owners) == 1 and nameless in self._piles:
                orphan, pile = self._piles.pop(nameless), self._piles[owners[0]]
                for segment, end in zip(orphan.segments, [*(s.start for s in orphan.segments[1:]), None], strict=True):
                    pile.add(orphan.records[segment.start : end], segment.file, segment.line)
                pile.torn_tail |= orphan.torn_tail

    def _process(self, key: ProcessKey, pile: _Pile) -> ProcessEvents:
        records, lost = self._in_order(pile)
        counts = Counter(record.event for record in records)
        for event, count in sorted((event, count) for event, count in counts.items() if event not in KNOWN_EVENTS):
            self._tally.add("unknown_event", pile.segments[0].file, None, event, count)
        return ProcessEvents(
            key=key,
            boot_id=next((record.boot_id for record in records if record.boot_id is not None), None),
            records=records,
            files=tuple(sorted({segment.file for segment in pile.segments})),
            lost=lost,
            torn_tail=pile.torn_tail,
        )

    def _in_order(self, pile: _Pile) -> tuple[list[Record], int]:
        """Return each event once, by `seq`, and how many numbers are missing."""
        numbers = [record.seq for record in pile.records]
        split = any(record.parts is not None for record in pile.records)
        if numbers == list(range(len(numbers))) and not split:
            return pile.records, 0
        self._count_reordered(pile, numbers)
        by_number: defaultdict[int, list[int]] = defaultdict(list)
        for index, number in enumerate(numbers):
            by_number[number].append(index)
        ordered: list[Record] = []
        for number in sorted(by_number):
            ordered += self._one_number(pile, by_number[number])
        return ordered, self._count_gaps(pile, sorted(by_number))

    def _one_number(self, pile: _Pile, indexes: list[int]) -> list[Record]:
        """Return the event or events that have one number: copies once, parts as one."""
        if len(indexes) == 1 and pile.records[indexes[0]].parts is None:
            return [pile.records[indexes[0]]]
        distinct: dict[bytes, Record] = {}
        for index in indexes:
            record = pile.records[index]
            encoded = msgspec.json.encode(record)
            if encoded in distinct:
                self._tally.add("duplicate_line", *pile.place(index), record.event)
            distinct.setdefault(encoded, record)
        parts = [record for record in distinct.values() if record.parts is not None]
        whole = [record for record in distinct.values() if record.parts is None]
        if parts:
            merged, missing = merge_parts(parts)
            whole.append(merged)
            if missing:
                file, line = pile.place(indexes[0])
                self._tally.add("missing_part", file, line, f"{merged.event} seq {merged.seq}", missing)
        if len(whole) > 1:
            self._tally.add("same_seq", *pile.place(indexes[1]), f"seq {whole[0].seq}", len(whole) - 1)
            whole.sort(key=msgspec.json.encode)
        return whole

    def _count_reordered(self, pile: _Pile, numbers: list[int]) -> None:
        highest = numbers[0]
        seen: set[int] = set()
        for index, number in enumerate(numbers):
            if number < highest and number not in seen:
                self._tally.add("reordered", *pile.place(index), f"seq {number} after {highest}")
            highest = max(highest, number)
            seen.add(number)

    def _count_gaps(self, pile: _Pile, numbers: list[int]) -> int:
        """Count the numbers from 0 to the last that are missing; the first gap of a process is its example."""
        lost = 0
        file = pile.segments[0].file
        for before, after in zip([-1, *numbers], numbers, strict=False):
            if after - before > 1 and after > 0:
                first = max(before + 1, 0)
                self._tally.add("seq_gap", file, None, _gap(first, after - 1), after - first)
                lost += after - first
        return lost


def sortable(key: ProcessKey) -> tuple[str, str, int, int]:
    """Return a key that orders processes; one without a start time comes first."""
    return key.run_id, key.host, key.pid, -1 if key.start_ticks is None else key.start_ticks


def _key(record: Record) -> ProcessKey:
    proc = record.proc
    return ProcessKey(record.run_id, record.host, record.pid, None if proc is None else proc.start_ticks)


def _gap(first: int, last: int) -> str:
    return f"seq {first}" if first == last else f"seq {first} to {last}"
