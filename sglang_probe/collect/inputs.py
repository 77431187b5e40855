"""Sources -> batches of events and texts of logs, each told by its content; what is neither is refused or counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol

import msgspec

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.files import PEEK_BYTES, reason_of
from sglang_probe.collect.lines import MARKER, Batch, LineReader
from sglang_probe.collect.logs.beside import Sieve, Strangers
from sglang_probe.collect.logs.join import Text
from sglang_probe.collect.logs.read import read_text
from sglang_probe.collect.own_output import is_own_output
from sglang_probe.collect.processes import Gatherer
from sglang_probe.collect.refusal import is_binary, is_utf16, looks_like_log, refusal
from sglang_probe.collect.repair import BLANKS, ENDS
from sglang_probe.collect.report import Tally
from sglang_probe.collect.sources import Source, opened, unreadable
from sglang_probe.collect.unpack import Reader, Unpacked

BLOCK_BYTES: Final = 64 * 1024
"""Read at a time: below the size from which malloc asks the kernel for fresh pages each time (128 KB)."""
SNIFF_BYTES: Final = 4096
"""Looked at to tell a binary file from text."""


class Watch(Protocol):
    """Who wants to know how far reading is."""

    def begin(self, total: int | None) -> None:
        """Take how many bytes there are to read; None where nobody knows, as of a pipe."""

    def read(self, count: int) -> None:
        """Take how many more were read, as they lie on the disk."""


class Inputs:
    """Reads the sources one after the other. Raises InputError, and nothing else."""

    def __init__(self, tally: Tally, gatherer: Gatherer | None, *, logs: bool, watch: Watch | None = None) -> None:
        """Without `logs` their lines are read for the events between them alone."""
        self.texts: list[Text] = []
        """The logs, as far as they were read."""
        self._tally, self._gatherer, self._logs, self._watch = tally, gatherer, logs, watch

    def batches(self, wanted: list[Source], stdin: BinaryIO | None) -> Iterator[Batch]:
        """Yield the events of all sources."""
        if self._watch is not None:
            self._watch.begin(_size_of(wanted))
        for source in wanted:
            try:
                with opened(source, stdin) as file:
                    yield from self._of_file(source, file)
            except OSError as error:
                if source.named:
                    raise unreadable(source.name, error) from None
                self._tally.add("unreadable_file", source.name, None, reason_of(error))

    def _of_file(self, source: Source, file: BinaryIO) -> Iterator[Batch]:
        watched = file if self._watch is None else _Watched(file, self._watch)
        try:
            stream = Unpacked(watched, source.name)
        except InputError as error:
            if source.named:
                raise
            self._tally.add("unreadable_file", source.name, None, str(error))
            return
        head = stream.read(BLOCK_BYTES)
        begun = _Begun(source, head, self._tally.events)
        if not _worth_reading(begun):
            self._without_either(begun, torn=False)
            return
        yield from self._of_log(begun, stream) if _is_text_first(begun) else self._of_events(begun, stream)
        if stream.fault is not None:
            self._tally.add("cut_archive", source.name, None, stream.fault)

    def _of_events(self, begun: _Begun, stream: Unpacked) -> Iterator[Batch]:
        """Yield the events of a file of events; what is none between them may be a log."""
        name, block = begun.source.name, begun.head
        strangers = Strangers(name)
        reader = LineReader(name, self._tally, strangers.add)
        try:
            while block:
                self._tally.bytes += len(block)
                yield from reader.feed(block)
                block = stream.read(BLOCK_BYTES)
            yield from reader.close()
            if reader.torn_tail and self._gatherer is not None:
                self._gatherer.mark_torn(name)
            found = strangers.text()
            notes = Tally()
            text = self._text(found, begun.source, notes) if found is not None and self._logs else None
            if text is None or not text.facts:
                strangers.count(self._tally)
        finally:
            strangers.close()
        self._settle(begun, text, notes, torn=reader.torn_tail)

    def _of_log(self, begun: _Begun, stream: Unpacked) -> Iterator[Batch]:
        """Yield the events of a log: most have none."""
        name = begun.source.name
        notes = Tally()
        text = None
        reader = LineReader(name, self._tally)
        sieve = Sieve(begun.head, stream, reader)
        if self._logs:
            text = self._text(sieve, begun.source, notes, begun.head)
        while sieve.read(BLOCK_BYTES):
            yield from sieve.taken()
        yield from sieve.taken()
        if reader.torn_tail and self._gatherer is not None:
            self._gatherer.mark_torn(name)
        self._tally.bytes += sieve.bytes
        if text is not None and not text.facts and self._tally.events > begun.events:
            self._tally.add("foreign_line", name, None, None, max(text.lines - sieve.events, 1))
        self._settle(begun, text, notes, torn=reader.torn_tail)

    @staticmethod
    def _text(stream: Reader, source: Source, notes: Tally, head: bytes | None = None) -> Text:
        return read_text(stream, source.name, notes, among=source.among, wanted=source.starts, head=head)

    def _settle(self, begun: _Begun, text: Text | None, notes: Tally, *, torn: bool) -> None:
        """Count what a file held, or refuse it."""
        has_events = self._tally.events > begun.events
        self._tally.files += has_events
        if text is not None and (text.counts or (has_events and text.facts)):
            self.texts.append(text)
            self._tally.absorb(notes)
            self._tally.log_files += 1
            self._tally.log_lines += text.lines
            self._tally.log_bytes += text.bytes
            self._tally.facts += text.facts
        elif not has_events:
            self._without_either(begun, torn=torn, said="" if text is None else text.said)

    def _without_either(self, begun: _Begun, *, torn: bool, said: str = "") -> None:
        name, head = begun.source.name, begun.head
        if begun.source.named:
            raise refusal(name, head[:PEEK_BYTES], torn=torn, said=said)
        self._tally.add(_kind_of(begun) if head else "empty_file", name)


class _Begun(msgspec.Struct, frozen=True):
    """A source of which the beginning was read."""

    source: Source
    head: bytes
    events: int
    """How many were counted before."""

    @property
    def is_log(self) -> bool:
        """True where it may be a log. Asked last: it takes as long as to decode events."""
        return looks_like_log(self.head)


def _kind_of(begun: _Begun) -> str:
    """Return what kind of loss a file is that holds neither events nor a log that says anything."""
    if is_own_output(begun.head):
        return "own_report"
    return "silent_log" if not is_binary(begun.head[:SNIFF_BYTES]) and begun.is_log else "foreign_file"


class _Watched:
    """A file whose reading is watched."""

    def __init__(self, file: BinaryIO, watch: Watch) -> None:
        self._file, self._watch = file, watch

    def read(self, size: int, /) -> bytes:
        block = self._file.read(size)
        self._watch.read(len(block))
        return block


def _worth_reading(begun: _Begun) -> bool:
    """Say whether a file may hold events or a log; another program's large file in a run directory is not read to its
    end."""
    if is_binary(begun.head[:SNIFF_BYTES]):
        return is_utf16(begun.head) and begun.is_log
    if is_own_output(begun.head):
        return False
    return begun.source.named or begun.source.name.endswith(".jsonl") or MARKER in begun.head or begun.is_log


def _is_text_first(begun: _Begun) -> bool:
    """Say whether a file is a log that may hold events, and not events that may hold a log: of those, each line that
    is none has its place in the report."""
    head = begun.head.lstrip(b"\0\xef\xbb\xbf" + BLANKS)
    end = head.find(b"\n")
    first = head if end < 0 else head[:end]
    if MARKER in first or ENDS in first:
        return False
    return (MARKER not in begun.head and not begun.source.name.endswith(".jsonl")) or begun.is_log


def _size_of(wanted: list[Source]) -> int | None:
    """Return the bytes of all sources; None where one is a pipe, or cannot be asked."""
    if any(source.path is None for source in wanted):
        return None
    try:
        return sum(source.path.stat().st_size for source in wanted if source.path is not None)
    except OSError:
        return None
