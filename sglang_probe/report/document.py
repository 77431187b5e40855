"""The whole report as one JSON document: `{"schema": "report/1.0", "timeline": ..., "explain": ...}`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sglang_probe.report.material import Material
from sglang_probe.report.plain import printable_json
from sglang_probe.timeline import shown

SCHEMA: Final = "report/1.0"


def write(material: Material, path: Path) -> None:
    """Write what `timeline --format json` and `explain --format json` print, in one file."""
    document = {"schema": SCHEMA, "timeline": shown(material.timeline), "explain": material.explanation}
    with path.open("wb") as file:
        file.writelines(json_pieces(document))


def json_pieces(document: object) -> Iterator[bytes]:
    """Yield a document, of structs or plain objects, as indented JSON (UTF-8) that may be shown on a terminal.

    What JSON has no type for must be iterable, as the processes of `timeline.shown`: it becomes a list, of which no two
    items are in memory at a time.
    """
    mark = secrets.token_hex()  # nobody can have written it into an event
    later: list[Iterable[object]] = []

    def set_aside(items: Iterable[object]) -> str:
        later.append(items)
        return mark

    frame = msgspec.json.format(msgspec.json.encode(document, enc_hook=set_aside))
    *heads, tail = frame.split(b'"%b"' % mark.encode())
    for head, items in zip(heads, later, strict=True):
        yield _printable(head)
        line = head[head.rfind(b"\n") :]
        yield from _listed(items, line[: len(line) - len(line.lstrip())])
    yield _printable(tail)
    yield b"\n"


def _listed(items: Iterable[object], outer: bytes) -> Iterator[bytes]:
    """Yield a list; `outer` is the newline and the blanks before its last line."""
    inner = outer + b"  "
    before = b"["
    for item in items:
        # No string of JSON holds a newline as it is.
        yield _printable(before + inner + msgspec.json.format(msgspec.json.encode(item)).replace(b"\n", inner))
        before = b","
    yield b"[]" if before == b"[" else outer + b"]"


def _printable(piece: bytes) -> bytes:
    if piece.isascii() and DELETE not in piece:
        return piece
    return printable_json(piece.decode()).encode()


DELETE: Final = b"\x7f"
"""The one ASCII character that JSON may hold unescaped and terminals obey."""
