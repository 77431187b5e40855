"""A server's log -> its entries: the one way into the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from sglang_probe.collect.logs.assemble import Assembler, IsWhole
from sglang_probe.collect.logs.blocks import Progress, blocks
from sglang_probe.collect.logs.model import Entry
from sglang_probe.collect.logs.pieces import Pieces
from sglang_probe.collect.logs.scan import Scanner, finder
from sglang_probe.collect.report import Tally


def entries(
    stream: BinaryIO,
    name: str,
    *,
    needles: Sequence[bytes],
    is_whole: IsWhole,
    notes: Tally,
    progress: Progress | None = None,
) -> Iterator[Entry]:
    """Yield the records of a log that hold a needle, in the order of time, in bounded memory.

    `needles`: every line worth reading holds one. `is_whole` says whether a text is one whole record of a known
    format and nothing else. Batches are sampled: the last before any other entry, and the last of all; so are progress
    bars. What was mended or left out is counted in `notes`, with its bytes and lines. `progress` is told the number of
    bytes just read. Errors of the stream pass: OSError, EOFError, a codec's.
    """
    source = blocks(stream, name, notes, progress)
    find = finder(needles)
    scanner = Scanner(source.blocks, name, finder=find, notes=notes, last=source.last_line)
    scanner.samples = source.width is None
    yield from Assembler(Pieces(scanner, name, find, notes, source.width), name, is_whole, notes).entries()
