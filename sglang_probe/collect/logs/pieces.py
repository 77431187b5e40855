"""Raw lines -> pieces: what one writer put on one line, its carriers' and SGLang's prefixes read and taken off."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from sglang_probe.collect.lines import LONGEST_LINE_BYTES
from sglang_probe.collect.logs import prefix, wraps
from sglang_probe.collect.logs.carriers import Carried, uncarry
from sglang_probe.collect.logs.carriers_json import from_json, is_scaffold
from sglang_probe.collect.logs.model import Entry
from sglang_probe.collect.logs.scan import BATCH, Finder, RawLine, Scanner
from sglang_probe.collect.report import Tally

_MOST_OPEN: Final = 64
"""Carriers' streams in which a cut-up record waits for its end."""
_MOST_LINES_OPEN: Final = 2000
"""After so many lines the end of a cut-up record is not waited for any more: every line is looked at meanwhile."""
_REPLACEMENT: Final = "\ufffd"


class Piece(msgspec.Struct, frozen=True):
    """A record, or a part of one."""

    line: int
    text: str
    carried: Carried
    prefix: prefix.Prefix | None
    indent: int
    """Blanks before it, and before its prefix."""
    hot: bool
    ended: bool

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return what tells its writer from others, as the carrier says."""
        return self.carried.key

    def entry(self, file: str, text: str | None = None) -> Entry:
        """Return it as an entry, with another text where it goes on in other pieces."""
        carried = self.carried
        own = self.prefix or prefix.Prefix()
        return Entry(
            file=file,
            line=self.line,
            text=(self.text if text is None else text).strip(),
            stamp=own.stamp or carried.stamp,
            ts=carried.ts,
            ranks=own.ranks,
            source=carried.source,
            host=carried.host,
            pid=carried.pid,
            prefixed=self.prefix is not None,
        )


class Pieces:
    """The pieces of one log, in order."""

    def __init__(self, scanner: Scanner, name: str, find: Finder, notes: Tally, width: int | None = None) -> None:
        self._scanner = scanner
        self._name = name
        self._find = find
        self._width = width
        """The text was cut at it; every line is looked at, for a needle may stand across the cut."""
        self._pushed: RawLine | None = None
        self._notes = notes
        self._spread_out = ""
        """The key of the message, quoted, in objects that are printed over several lines."""
        self._waiting: deque[Piece] = deque()
        self._waited = 0
        self._open: dict[tuple[str | None, ...], tuple[RawLine, Carried, int]] = {}

    def take(self, *, context: bool = False) -> Piece | None:
        """Return the next piece of a line with a needle, or with `context` of the very next line; None at the end."""
        while not self._waiting:
            raw = self._next(context=context)
            if raw is not None:
                self._read(raw)
            elif not self._open:
                return None
            if self._open and (raw is None or self._waited > _MOST_LINES_OPEN):
                self._give_up()
        return self._waiting.popleft()

    def _next(self, *, context: bool) -> RawLine | None:
        """Return the next line; where the text was cut at a width, with its rest."""
        if self._width is None:
            return self._scanner.take(context=context or bool(self._open))
        raw = self._pushed or self._scanner.take(context=True)
        self._pushed = None
        if raw is None:
            return None
        last, data = raw, raw.data.rstrip(b"\r")
        while (joint := wraps.between(_text(last), self._width)) is not None and len(data) < LONGEST_LINE_BYTES:
            following = self._scanner.take(context=True)
            if following is None or not wraps.goes_on(_text(following)):
                self._pushed = following
                break
            data += joint.encode() + following.data.rstrip(b"\r")
            last = following
        if last is not raw:
            self._notes.add("wrapped_log_line", self._name, raw.number, data)
        return raw._replace(data=data, hot=True, ended=last.ended)

    def _give_up(self) -> None:
        """Take the records whose ends do not come as they are."""
        for line, carried, _ in self._open.values():
            self._cut(line, carried)
        self._open.clear()

    def _read(self, raw: RawLine) -> None:
        text = _text(raw)
        if _REPLACEMENT in text:
            self._count_replaced(raw, text)
        if self._spread_out and is_scaffold(text) and not text.lstrip().startswith(self._spread_out):
            return
        carried = _unpacked(text)
        if carried.spread_out and not self._spread_out:
            self._spread_out = text.lstrip()[: text.lstrip().index(":")]
        self._waited += 1
        key = carried.key
        begun = self._open.get(key) if self._open else None
        if begun is not None:
            first, before, size = begun
            before.text += carried.text
            size += len(carried.text)
            if carried.part and size < LONGEST_LINE_BYTES:
                self._open[key] = (first, before, size)
                return
            del self._open[key]
            self._cut(first._replace(ended=raw.ended), before)
        elif carried.part and raw.hot and len(self._open) < _MOST_OPEN:
            self._open[key] = (raw, carried, len(carried.text))
            self._waited = 0
        else:
            self._cut(raw, carried)

    def _cut(self, raw: RawLine, carried: Carried) -> None:
        if carried.repeated:
            self._notes.add("repeated_log_line", self._name, raw.number, carried.text)
        for line in carried.text.split("\n"):
            indent = len(line) - len(line.lstrip())
            for part in prefix.parts(line) or (prefix.Part(None, ""),):
                hot = raw.hot and self._is_hot(part.text)
                self._waiting.append(Piece(raw.number, part.text, carried, part.prefix, indent, hot, raw.ended))

    def _is_hot(self, text: str) -> bool:
        """Say whether a needle stands in the text itself, not in what carried it or beside it."""
        data = text.encode("utf-8", "replace")
        return BATCH in data or bool(self._find(data))

    def _count_replaced(self, raw: RawLine, text: str) -> None:
        """Count what the decoder replaced; a mark that stood in the text already is the text's."""
        count = text.count(_REPLACEMENT) - raw.data.count(_REPLACEMENT.encode())
        if count > 0:
            self._notes.add("not_utf8", self._name, raw.number, text, count=count)


def _text(raw: RawLine) -> str:
    return raw.data.rstrip(b"\r").decode("utf-8", "replace")


def _unpacked(text: str) -> Carried:
    """Take off carriers in any nesting: a prefix before JSON, a prefix inside it."""
    carried = uncarry(Carried(text))
    for _ in range(2):
        inner = from_json(carried.text)
        if inner is None:
            break
        for name in ("ts", "source", "host", "pid", "stream"):
            if getattr(inner, name) is None:
                setattr(inner, name, getattr(carried, name))
        carried = uncarry(inner)
    return carried
