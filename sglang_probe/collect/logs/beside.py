"""Text and events in one stream, as where a server's output and its events went into one file: each to its reader."""

from __future__ import annotations

import re
import tempfile
from typing import IO, Final

from sglang_probe.collect.lines import LONGEST_LINE_BYTES, MARKER, Batch, LineReader
from sglang_probe.collect.repair import BLANKS, STARTS
from sglang_probe.collect.report import MAX_EXAMPLES, Tally
from sglang_probe.collect.unpack import Reader

_EVENT: Final = re.compile(rb'\{\s*"schema"\s*:\s*"[^"]*"\s*,.*"event"\s*:\s*"sglang\.')
_IN_MEMORY: Final = 8 << 20


class Sieve:
    """A stream of text without the events in it, which go to `reader`; an empty line stands in place of each."""

    def __init__(self, head: bytes, stream: Reader, reader: LineReader) -> None:
        self.batches: list[Batch] = []
        """The events that were found so far and not taken."""
        self.events = self.bytes = 0
        """Lines that hold one, and their bytes."""
        self._head, self._stream, self._reader = head, stream, reader
        self._lines = self._rest = b""
        """Whole lines that come next, and the beginning of the one behind them."""
        self._line = 1

    def read(self, size: int, /) -> bytes:
        """Return the next text, in whole lines: at most about `size` bytes, none at the end.

        A line that a block cuts is returned by itself: to put it before the block would copy a megabyte for it.
        """
        while True:
            if self._lines:
                lines, self._lines = self._lines, b""
                return self._without_events(lines)
            block, self._head = self._head or self._stream.read(size), b""
            if not block:
                rest, self._rest = self._rest, b""
                return self._last(rest)
            cut = block.rfind(b"\n") + 1
            if cut:
                end = block.find(b"\n") + 1 if self._rest else 0
                line, self._lines, self._rest = self._rest + block[:end], block[end:cut], block[cut:]
                if line:
                    return self._without_events(line)
                continue
            self._rest += block
            if len(self._rest) > LONGEST_LINE_BYTES:  # no event: the text's reader knows what to do with it
                rest, self._rest = self._rest, b""
                return rest

    def taken(self) -> list[Batch]:
        """Take the events that were found so far."""
        batches, self.batches = self.batches, []
        return batches

    def _without_events(self, lines: bytes) -> bytes:
        count = lines.count(b"\n")
        if MARKER in lines:
            kept = lines[:-1].split(b"\n")
            for place, line in enumerate(kept):
                begins = event_at(line)
                if begins is not None:
                    self._reader.line = self._line + place
                    self._feed(line[begins:] + b"\n")
                    kept[place] = line[:begins]
            lines = b"\n".join(kept) + b"\n"
        self._line += count
        return lines

    def _feed(self, line: bytes) -> None:
        self.batches += self._reader.feed(line)
        self.events += 1
        self.bytes += len(line)

    def _last(self, line: bytes) -> bytes:
        begins = event_at(line)
        if begins is None:
            return line
        self._reader.line = self._line
        self._feed(line[begins:])
        self.batches += self._reader.close()
        return line[:begins]


def event_at(line: bytes) -> int | None:
    """Return where an event begins in a line, whole or cut off; None where there is none."""
    if MARKER not in line:
        return None
    place = line.find(STARTS)
    if place >= 0:
        return place
    match = _EVENT.search(line)
    return None if match is None else match.start()


class Strangers:
    """The lines of a file of events that are none, kept until it is known whether they are a log's."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._first: list[tuple[int, bytes]] = []
        self._count = 0
        self._line = 1
        self._text: IO[bytes] | None = None

    def add(self, number: int, text: bytes) -> None:
        """Take the next line, or piece of one."""
        self._count += 1
        if len(self._first) < MAX_EXAMPLES:
            self._first.append((number, text.strip(BLANKS)))
        if self._text is None:
            self._text = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (`close` is below)
        self._text.write((b"\n" * (number - self._line) or b" ") + text.rstrip(b"\r"))
        self._line = number

    def text(self) -> IO[bytes] | None:
        """Return the lines as a text in which each has its own number; None where there is none."""
        if self._text is not None:
            self._text.seek(0)
        return self._text

    def count(self, tally: Tally) -> None:
        """Count them as lines that are no events."""
        for place, (number, text) in enumerate(self._first):
            more = self._count - len(self._first) if place == len(self._first) - 1 else 0
            tally.add("foreign_line", self._file, number, text, 1 + more)

    def close(self) -> None:
        """Give up what was kept."""
        if self._text is not None:
            self._text.close()
