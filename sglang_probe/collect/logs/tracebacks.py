"""Tracebacks: from `Traceback (most recent call last):` to the end of the exception's message, over the lines between.

Ranks that fail together write their tracebacks through each other, line by line. Such lines cannot be given back to
their ranks: the exceptions' own lines are kept, each for itself, and belong to nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from sglang_probe.collect.logs.pieces import Piece
from sglang_probe.collect.logs.traceback_lines import CHAINS, HEAD, names_exception
from sglang_probe.collect.logs.wraps import WIDTHS, between

_MOST_LINES: Final = 2000
_MOST_FOREIGN: Final = 200
"""Lines of others between two lines of one traceback."""
_MOST_STRAY: Final = 20
"""Lines of a traceback's body that look like none: frames wrapped by a terminal, warnings of others."""
_MOST_MESSAGE: Final = 64

Peek = Callable[[int], "Piece | None"]


class Gathered:
    """What belongs to a traceback: its lines, and the places ahead where they stand."""

    def __init__(self, head: Piece) -> None:
        self.lines = [head.text.strip()]
        self.places: list[int] = []
        self.tangled = False
        """A second traceback of the same writer began inside it."""
        self.in_body = HEAD in head.text
        self._chained = False
        self._blanks: list[int] = []
        self._stray = self._message = 0

    @property
    def text(self) -> str:
        """Return all lines, an exception's message that was cut at a width as one."""
        return "\n".join(_mended(self.lines)).rstrip()

    def takes(self, text: str, place: int, stands: bool) -> bool:
        """Take a line of the same writer without prefix, if it goes on here; `stands`: it is a record of its own."""
        if not self.in_body and not text.strip():
            self._blanks.append(place)
            return True
        goes_on = self._in_body(text) if self.in_body else self._after_it(text, stands)
        if goes_on:
            self.lines += [*([""] * len(self._blanks)), text.rstrip()]
            self.places += [*self._blanks, place]
            self._blanks.clear()
        return goes_on and len(self.lines) < _MOST_LINES

    def _in_body(self, text: str) -> bool:
        if HEAD in text:
            self.tangled = True
            return False
        if text[:1] not in (" ", "\t") and text.strip():
            self.in_body = not names_exception(text)
            self._stray += self.in_body
        return self._stray <= _MOST_STRAY

    def _after_it(self, text: str, stands: bool) -> bool:
        """Go on behind the exception's line: with its message, or with another traceback that it is chained to."""
        if self._chained or text.startswith(CHAINS):
            self.in_body, self._chained = HEAD in text, HEAD not in text
            self._message = 0
            return self.in_body or text.startswith(CHAINS)
        self._message += 1
        return not self._blanks and not stands and self._message <= _MOST_MESSAGE


def gather(head: Piece, peek: Peek, stands: Callable[[Piece], bool]) -> Gathered:
    """Look ahead for the rest of what begins with this piece: a traceback, or an exception's line.

    `stands` says whether a piece is a record of its own, which no message goes on into.
    """
    found = Gathered(head)
    foreign = place = 0
    while foreign <= _MOST_FOREIGN and (piece := peek(place)) is not None:
        if piece.key != head.key or (piece.prefix is not None and found.in_body and HEAD not in piece.text):
            foreign += 1  # written between by another; the traceback goes on behind it
        elif piece.prefix is not None:
            found.tangled = found.in_body
            break
        else:
            text = piece.text if piece.indent < head.indent else piece.text[head.indent :]
            if not found.takes(text, place, not found.in_body and stands(piece)):
                break
        place += 1
    return found


def _mended(lines: list[str]) -> list[str]:
    """Put a message together whose lines are all as long as the exception's own, but for the last."""
    mended: list[str] = []
    rest = deque(lines)
    while rest:
        line = rest.popleft()
        width = max(len(line), len(rest[0])) if rest else 0
        if width in WIDTHS and names_exception(line) and between(rest[0], width) is not None:
            last = line
            while rest and rest[0] and (joint := between(last, width)) is not None:
                last = rest.popleft()
                line += joint + last
        mended.append(line)
    return mended
