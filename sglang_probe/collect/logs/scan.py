"""Blocks of a log -> the few lines worth reading, and the lines after them on request.

A serving log is gigabytes of batch and access lines that say nothing new. No line is looked at in Python unless it
holds a needle: one pass of an automaton per block finds those, two more count line ends and find the last batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import ahocorasick_rs

from sglang_probe.collect.lines import LONGEST_LINE_BYTES
from sglang_probe.collect.report import Tally

BATCH: Final = b"token usage: "
"""In every `Prefill batch` and `Decode batch` line of every release."""
_OWN_NEEDLES: Final = (b"Traceback (most recent call last):", b'"MESSAGE":[', b'"MESSAGE" : [')
"""journald writes a message with colours as an array of numbers, in which no needle can be seen."""
_LONG_BAR: Final = 1 << 20
"""A line without an end this long is cut at its last bare CR: progress bars go on for hours."""

_SHIELDS: Final = (b"#retracted-req: ",)
"""Parts of batch lines that hold another line's needle: found in its place, they hide it."""

Finder = Callable[[bytes], list[int]]


class RawLine(NamedTuple):
    """One physical line, its end taken off."""

    number: int
    data: bytes
    hot: bool
    """It holds a needle, or is the batch kept for its stretch of the file; else it is context that was asked for."""
    ended: bool = True
    """False for a last line without newline."""


class Scanner:
    """Finds the lines that hold a needle in blocks of bytes, however these are cut."""

    def __init__(self, blocks: Iterable[bytes], name: str, *, finder: Finder, notes: Tally, last: int | None = None):
        """Take blocks in the order in which lines shall come; `last` numbers them downwards from there."""
        self._blocks = blocks
        self._name = name
        self._find = finder
        self._notes = notes
        self._number = 1 if last is None else last
        self._step = 1 if last is None else -1
        self.samples = True
        """A batch asked for as context comes again as the last of its stretch."""
        self._batch: RawLine | None = None
        self._wanted = False
        self._lines = self._run()

    def take(self, *, context: bool = False) -> RawLine | None:
        """Return the next line with a needle, or with `context` the very next line; None at the end."""
        self._wanted = context
        return next(self._lines, None)

    def _run(self) -> Iterator[RawLine]:
        for chunk, ended in self._chunks():
            yield from self._in_chunk(chunk, ended)
        if self._batch is not None:
            yield self._batch

    def _in_chunk(self, chunk: bytes, ended: bool) -> Iterator[RawLine]:
        """Yield from whole lines; the last ends in a newline, but for the last of the file and a cut-up bar."""
        hits = self._find(chunk)
        at, following, size = 0, 0, len(chunk)
        while at < size:
            while following < len(hits) and hits[following] < at:
                following += 1
            hit = hits[following] if following < len(hits) else size
            start = at if self._wanted else chunk.rfind(b"\n", at, hit) + 1 or at
            if start > at or hit == size:
                stop = size if hit == size and not self._wanted else start
                self._pass_over(chunk, at, stop)
                at = start = stop
                if at >= size:
                    return
            end = chunk.find(b"\n", start)
            end = size if end < 0 else end
            line = RawLine(self._number, chunk[start:end], hit < end, ended or end < size)
            if end < size:
                self._number += self._step
                self._notes.lines += 1
            at = end + 1
            yield from self._with_batch(line)

    def _with_batch(self, line: RawLine) -> Iterator[RawLine]:
        """Yield a line; before one with a needle, the last batch before it."""
        if not line.hot:
            if self.samples and BATCH in line.data:
                self._batch = line._replace(hot=True)
        elif self._batch is not None:
            yield self._batch
            self._batch = None
        yield line

    def _pass_over(self, chunk: bytes, start: int, stop: int) -> None:
        """Count the lines of a stretch without needles and keep its last batch."""
        if stop <= start:
            return
        count = chunk.count(b"\n", start, stop)
        batch = chunk.rfind(BATCH, start, stop)
        if batch >= 0:
            begin = max(chunk.rfind(b"\n", start, batch) + 1, start)
            end = chunk.find(b"\n", batch, stop)
            number = self._number + self._step * chunk.count(b"\n", start, begin)
            self._batch = RawLine(number, chunk[begin : end if end >= 0 else stop], hot=True)
        self._number += self._step * count
        self._notes.lines += count

    def _chunks(self) -> Iterator[tuple[bytes, bool]]:
        """Yield the blocks cut anew behind a newline; a line too long to be a record is left out, not kept."""
        rest = b""
        skipping = False
        for block in self._blocks:
            if skipping:
                end = block.find(b"\n") + 1
                if not end:
                    continue
                skipping = False
                self._count_long()
                block = block[end:]  # noqa: PLW2901 - the rest of the block
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut], True
                rest = block[cut:]
                continue
            rest += block
            if len(rest) > _LONG_BAR and (bare := rest.rfind(b"\r", 0, -1) + 1):
                yield rest[:bare], False
                rest = rest[bare:]
            elif len(rest) > LONGEST_LINE_BYTES:
                rest, skipping = b"", True
        if skipping:
            self._count_long()
        elif rest:
            yield rest, False
            self._notes.lines += 1

    def _count_long(self) -> None:
        self._notes.add("long_log_line", self._name, self._number)
        self._notes.lines += 1
        self._number += self._step


def finder(needles: Sequence[bytes]) -> Finder:
    """Return what finds needles in a block: where each begins, in order, without overlaps.

    A needle that every batch line holds is left out: the last batch of a stretch is kept anyway, and to stop at each
    would make reading a hundred times slower.
    """
    wanted = [needle for needle in needles if needle and needle not in b"Prefill batch Decode batch token usage: "]
    automaton = ahocorasick_rs.BytesAhoCorasick(
        [*_SHIELDS, *wanted, *_OWN_NEEDLES], matchkind=ahocorasick_rs.MatchKind.LeftmostFirst
    )
    shields = len(_SHIELDS)

    def find(data: bytes) -> list[int]:
        return [start for which, start, _ in automaton.find_matches_as_indexes(data) if which >= shields]

    return find
