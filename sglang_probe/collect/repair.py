"""One line that is not simply an event: what of it is one, and what is the rest?

The writer begins a new line after a short write, so a cut-off line spoils no other. But a copy, a pipe or another
program may have glued lines, put text in front of them, or left NUL bytes where a machine lost power.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.records import BROKEN, Record
from sglang_probe.collect.report import Tally
from sglang_probe.events.names import SCHEMA_VERSION

STARTS: Final = b'{"schema":"'
"""How the writer begins every line."""
ENDS: Final = b'"degraded":['
"""What stands near the end of every line: tells a line that lost its beginning."""
BLANKS: Final = b" \t\r\n"

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a JSON text; its group is half of a surrogate pair without the other, which JSON's readers refuse."""
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Stands in every text with a surrogate, whole pair or half."""

Foreign = Callable[[int, bytes], None]
"""Takes the number and the text of a line, or of a piece of it, that is no event."""

_decode = msgspec.json.Decoder(Record).decode
_decode_any = msgspec.json.Decoder().decode
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")
_MAJOR, _MINOR = (int(number) for number in SCHEMA_VERSION.split("."))


class Repairer:
    """Takes single lines of one file. Raises InputError for a newer major schema, and nothing else."""

    def __init__(self, file: str, tally: Tally, foreign: Foreign) -> None:
        self._file = file
        self._tally = tally
        self._foreign = foreign

    def records(self, line: bytes, number: int, *, is_last: bool = False) -> list[Record]:
        """Return the events in a line, usually one; count whatever else is in it."""
        text = self._clean(line, number)
        if not text:
            self._tally.add("blank_line", self._file, number)
            return []
        found = []
        for piece in [text] if _event(text) is not None else _split(text):
            event = _event(piece)
            if event is None:
                self._count(piece, number, is_last=is_last and text.endswith(piece))
            else:
                self.check_version(event.schema, number)
                found.append(event)
        return found

    def check_version(self, schema: str, number: int, count: int = 1) -> None:
        """Count `count` events of another minor version; raise InputError for a newer major."""
        if schema == SCHEMA_VERSION:
            return
        version = _VERSION.fullmatch(schema)
        if version is None or int(version[1]) < _MAJOR:
            self._tally.add("other_schema", self._file, number, f"schema {schema}", count)
        elif int(version[1]) > _MAJOR:
            raise InputError(
                f"{self._file}: line {number} has event schema {schema}, and this sglang-probe reads up to {_MAJOR}.x",
                "a newer sglang-probe wrote it: upgrade this one (pip install --upgrade 'sglang-probe[cli]')",
            )
        elif int(version[2]) > _MINOR:
            self._tally.add("newer_minor", self._file, number, f"schema {schema}", count)

    def _clean(self, line: bytes, number: int) -> bytes:
        if b"\0" in line:
            self._tally.add("nul_bytes", self._file, number)
            line = line.replace(b"\0", b"")
        line = line.strip(BLANKS)
        try:
            line.decode()
        except UnicodeDecodeError:
            self._tally.add("not_utf8", self._file, number, line)
            line = line.decode("utf-8", "replace").encode()
        whole = without_half_pairs(line)
        if whole != line:
            self._tally.add("half_pair", self._file, number)
        return whole

    def _count(self, piece: bytes, number: int, *, is_last: bool) -> None:
        value = _json(piece)
        if isinstance(value, dict):
            schema, event = value.get("schema"), value.get("event")
            if isinstance(schema, str) and isinstance(event, str) and event.startswith("sglang."):
                self.check_version(schema, number)
                self._tally.add("wrong_shape", self._file, number, piece)
                return
        kind = _kind_of_wreck(piece, is_last) if value is None else "foreign_line"
        if kind == "foreign_line":
            self._foreign(number, piece)
        else:
            self._tally.add(kind, self._file, number, piece)


def count_foreign(file: str, tally: Tally) -> Foreign:
    """Return what counts the lines of a file that are no events."""
    return lambda number, text: tally.add("foreign_line", file, number, text.strip(BLANKS))


def _event(text: bytes) -> Record | None:
    try:
        return _decode(text)
    except BROKEN:
        return None


def _json(text: bytes) -> Any:
    try:
        return _decode_any(text)
    except BROKEN:
        return None


def _split(text: bytes) -> Iterator[bytes]:
    """Yield the pieces of a line, cut before every place where an event begins."""
    starts = [match.start() for match in re.finditer(re.escape(STARTS), text)]
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        piece = text[start:end].strip(BLANKS)
        if piece:
            yield piece


def without_half_pairs(text: bytes) -> bytes:
    """Return a JSON text with U+FFFD for each half of a surrogate pair, as Python writes for a byte not UTF-8."""
    if _HALF_PAIR.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text)


def _kind_of_wreck(piece: bytes, is_last: bool) -> str:
    """Say what a line is that is no JSON: of the probe and cut off, of the probe and broken otherwise, or foreign."""
    if not piece.startswith(STARTS) and not STARTS.startswith(piece):
        return "headless_line" if ENDS in piece and piece.endswith(b"}") else "foreign_line"
    if not _is_cut_off(piece):
        return "broken_line"
    return "torn_tail" if is_last else "torn_line"


def _is_cut_off(piece: bytes) -> bool:
    """Say whether a text is the beginning of JSON: only its end is missing."""
    for text in (piece, piece + b"0"):  # a number may be cut off after its sign, point or e
        try:
            _decode_any(text)
        except msgspec.DecodeError as error:
            if "truncated" in str(error):
                return True
        except (UnicodeDecodeError, RecursionError):
            return False
    return False
