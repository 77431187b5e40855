"""Bytes -> records, a block at a time, whatever the bytes are.

A block in which every line is a whole event is decoded in one go; any other block line by line, so that one bad line
costs itself alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sglang_probe.collect.records import BROKEN, Record
from sglang_probe.collect.repair import BLANKS, Foreign, Repairer, count_foreign
from sglang_probe.collect.report import Tally
from sglang_probe.events.names import SCHEMA_VERSION

LONGEST_LINE_BYTES: Final = 4 * 1024 * 1024
"""Far over the contract's 30 KB; a longer one is no event, and is not kept in memory."""
MARKER: Final = b'"schema"'
BOM: Final = b"\xef\xbb\xbf"

_decode_lines = msgspec.json.Decoder(Record).decode_lines


class Batch(msgspec.Struct):
    """Records of consecutive lines of one file."""

    file: str
    first_line: int
    records: list[Record]


class LineReader:
    """Takes the blocks of one file in order. Raises InputError for a newer major schema, and nothing else."""

    def __init__(self, file: str, tally: Tally, foreign: Foreign | None = None) -> None:
        """Give lines that are no events to `foreign`, with their number; without it they are counted."""
        self.file = file
        self.line = 1
        """Number of the line that comes next."""
        self.torn_tail = False
        """The file ends in a cut-off line; known after `close`."""
        self._tally = tally
        self._foreign = foreign or count_foreign(file, tally)
        self._repairer = Repairer(file, tally, self._foreign)
        self._rest = b""
        self._skipping = False
        """Inside a line that is too long to be an event."""

    def feed(self, block: bytes) -> list[Batch]:
        """Return the events of the lines that end in this block."""
        buffer = self._rest + block
        if self._skipping:
            buffer = self._after_long_line(buffer)
        elif self.line == 1:
            buffer = buffer.removeprefix(BOM)
        cut = buffer.rfind(b"\n") + 1
        self._rest = buffer[cut:]
        if len(self._rest) > LONGEST_LINE_BYTES:
            self._rest, self._skipping = b"", True
        return self._whole_lines(buffer[:cut]) if cut else []

    def close(self) -> list[Batch]:
        """Return the event of a last line without newline, if it is whole."""
        last, self._rest = self._rest, b""
        if self._skipping:
            self._tally.add("long_line", self.file, self.line)
        if not last:
            return []
        self._tally.lines += 1
        torn = self._tally.count("torn_tail")
        records = self._repairer.records(last, self.line, is_last=True)
        self.torn_tail = self._tally.count("torn_tail") > torn
        return self._batch(self.line, records)

    def _after_long_line(self, buffer: bytes) -> bytes:
        end = buffer.find(b"\n") + 1
        if not end:
            return b""
        self._tally.add("long_line", self.file, self.line)
        self._tally.lines += 1
        self.line += 1
        self._skipping = False
        return buffer[end:]

    def _whole_lines(self, lines: bytes) -> list[Batch]:
        count = lines.count(b"\n")
        first = self.line
        self.line += count
        self._tally.lines += count
        if MARKER not in lines:
            self._count_foreign(lines, first)
            return []
        records = _all_or_none(lines)
        if records is None or len(records) != count:
            return self._one_by_one(lines, first)
        for schema in {record.schema for record in records} - {SCHEMA_VERSION}:
            number, many = _first_and_count(records, schema)
            self._repairer.check_version(schema, first + number, count=many)
        return self._batch(first, records)

    def _count_foreign(self, lines: bytes, first: int) -> None:
        """Count the lines of a block in which none can be an event."""
        for number, line in enumerate(lines[:-1].split(b"\n"), first):
            if line.strip(BLANKS):
                self._foreign(number, line)
            else:
                self._tally.add("blank_line", self.file, number)

    def _one_by_one(self, lines: bytes, first: int) -> list[Batch]:
        found: list[Batch] = []
        for number, line in enumerate(lines[:-1].split(b"\n"), first):
            batch = self._batch(number, self._repairer.records(line, number))
            if batch and found and found[-1].first_line + len(found[-1].records) == number:
                found[-1].records += batch[0].records
            else:
                found += batch
        return found

    def _batch(self, first: int, records: list[Record]) -> list[Batch]:
        self._tally.events += len(records)
        return [Batch(self.file, first, records)] if records else []


def _all_or_none(lines: bytes) -> list[Record] | None:
    """Decode a block; None when something in it is not an event in UTF-8."""
    try:
        if not lines.isascii():
            lines.decode()
        return _decode_lines(lines)
    except BROKEN:
        return None


def _first_and_count(records: list[Record], schema: str) -> tuple[int, int]:
    places = [place for place, record in enumerate(records) if record.schema == schema]
    return places[0], len(places)
