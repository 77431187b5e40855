"""A stream -> blocks of UTF-8 without NUL bytes, oldest line first.

PowerShell's `>` writes UTF-16; a log that was cut while a server wrote has NUL bytes; an export of a cloud's log begins
with the newest line. Each is seen in the first block, and mended block by block.
"""

from __future__ import annotations

import codecs
import io
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import IO, BinaryIO, Final, NamedTuple

from sglang_probe.collect.lines import BOM, LONGEST_LINE_BYTES
from sglang_probe.collect.logs.wraps import width_of
from sglang_probe.collect.report import Tally

BLOCK_BYTES: Final = 1 << 20
_UTF_16: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d")
_STAMP_WITHIN: Final = 400
"""Bytes of a line in which its stamp must begin."""
_HOLE: Final = re.compile(rb"(?:(?<=\n)|\A)\0+")
_NUL: Final = re.compile(rb"\0+")
_MIN_FALLS: Final = 3
_FALLS_PER_RISE: Final = 4
"""Ranks' lines overtake each other by a second, and a second start may have an older clock; an export only falls."""

Progress = Callable[[int], None]


class Blocks(NamedTuple):
    """What is read, and the number of its first line when the lines come last one first."""

    blocks: Iterable[bytes]
    last_line: int | None = None
    width: int | None = None
    """What its lines were cut at; None where they are whole."""


def blocks(stream: BinaryIO, name: str, notes: Tally, progress: Progress | None = None) -> Blocks:
    """Return a stream's blocks in the order of time. OSError, EOFError and a codec's errors of the stream pass."""
    source = _read(stream, notes, progress)
    first = next(source, b"")
    encoding = _utf_16(first)
    if encoding is not None:
        notes.add("utf_16", name)
        source = _as_utf_8(chain([first], source), encoding)
        first = next(source, b"")
    clean = _clean(chain([first.removeprefix(BOM)], source), name, notes)
    if not falls(first):
        return Blocks(clean, width=width_of(first))
    notes.add("reversed_log", name)
    plain = encoding is None and isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
    return _turned(stream if plain and stream.seekable() else None, clean)


def falls(block: bytes) -> bool:
    """Say whether the stamps of a text's beginning run backwards."""
    rises = fallen = 0
    before: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        match = _STAMP.search(line[: _STAMP_WITHIN + 32])
        if match is None or match.start() > _STAMP_WITHIN:
            continue
        stamp = match.group()
        kind = stamp[10:11] if match[1] else b""  # a carrier's UTC and SGLang's local time are not compared
        last = before.get(kind, stamp)
        rises += stamp > last
        fallen += stamp < last
        before[kind] = stamp
    return fallen >= _MIN_FALLS and fallen >= _FALLS_PER_RISE * rises


def _read(stream: BinaryIO, notes: Tally, progress: Progress | None) -> Iterator[bytes]:
    while block := stream.read(BLOCK_BYTES):
        notes.bytes += len(block)
        if progress is not None:
            progress(len(block))
        yield block


def _utf_16(first: bytes) -> str | None:
    """Return the encoding of a text in UTF-16, with or without its mark: every second byte is NUL."""
    for mark, encoding in _UTF_16:
        if first.startswith(mark):
            return encoding
    head = first[:64]
    for place, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half = head[place::2]
        if len(half) >= 8 and not half.strip(b"\0") and b"\0" not in head[1 - place :: 2]:
            return encoding
    return None


def _as_utf_8(source: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in source:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _clean(source: Iterable[bytes], name: str, notes: Tally) -> Iterator[bytes]:
    for block in source:
        if b"\0" in block:
            notes.add("nul_bytes", name, count=block.count(b"\0"))
            yield _without_nul(block)
        else:
            yield block


def _without_nul(block: bytes) -> bytes:
    """Take NUL bytes out: those of a part in UTF-16, and a hole before a line; others stand for a lost byte."""
    if b"\0" not in block:
        return block
    if block.count(b"\0") * 3 > len(block):
        return block.replace(b"\0", b"")
    return _NUL.sub(b"\x01", _HOLE.sub(b"", block))


def _turned(stream: BinaryIO | None, clean: Iterable[bytes]) -> Blocks:
    """Return the blocks last line first; what cannot be read backwards is written to a temporary file before."""
    held = tempfile.TemporaryFile() if stream is None else stream  # noqa: SIM115 - it lives as long as its blocks
    lines = 0
    ended = True
    for block in clean:
        lines += block.count(b"\n")
        ended = block.endswith(b"\n")
        if stream is None:
            held.write(block)
    return Blocks(_backwards(held, close=stream is None), lines + (not ended))


def _backwards(held: IO[bytes], *, close: bool) -> Iterator[bytes]:
    """Yield a file from its end, the lines of each block turned round and ended by newlines."""
    with held if close else nullcontext():
        place = held.seek(0, io.SEEK_END)
        rest: bytes | None = None
        while place:
            size = min(BLOCK_BYTES, place)
            place -= size
            held.seek(place)
            block = _without_nul(held.read(size))
            lines = (block.removesuffix(b"\n") if rest is None else block + rest).split(b"\n")
            rest = lines.pop(0)
            if len(rest) > LONGEST_LINE_BYTES:
                rest = b""
            if lines:
                yield b"\n".join(reversed(lines)) + b"\n"
        if rest is not None:
            yield rest + b"\n"
