"""Pieces -> entries: records joined that were wrapped, tracebacks gathered, bars and batches reduced to their last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final

from sglang_probe.collect.logs import server_args, tracebacks
from sglang_probe.collect.logs.model import Entry
from sglang_probe.collect.logs.pieces import Piece, Pieces
from sglang_probe.collect.logs.traceback_lines import HEAD, names_exception
from sglang_probe.collect.report import Tally

_BAR: Final = re.compile(r"\d{1,3}%\|.{0,400}?\| {0,20}\d{1,12}/\d{1,12} \[")
_BATCHES: Final = ("Prefill batch", "Decode batch")
_FEW: Final = 8
"""Lines that a record of a known format may be wrapped over."""
_MANY: Final = 1000
"""Lines of arguments, which are 12 KB in one record; tried where a line ends as they do."""
_LONGEST_BAR: Final = 2000
_MOST_IN_VAIN: Final = 200
"""Behind so many, lines without a prefix are another program's, and not tried any more."""
_LONG: Final = re.compile(r"[^(){}]{0,100}[({]")
_ENDS_LONG: Final = (")", "}", "),", "},")
_MOST_BETWEEN: Final = 3
"""Records of other writers between the halves of one that two processes wrote at once."""
_TANGLED_LINES: Final = 2000
_MOST_TRIED: Final = 40
"""Ends of arguments that may be the last."""
_FIGURE: Final = frozenset("0123456789.")
_NOT_PART: Final = "\x00"

IsWhole = Callable[[str], bool]


class Assembler:
    """Makes the entries of one log."""

    def __init__(self, pieces: Pieces, file: str, is_whole: IsWhole, notes: Tally) -> None:
        self._pieces = pieces
        self._file = file
        self._is_whole = is_whole
        self._notes = notes
        self._ahead: deque[Piece] = deque()
        self._batch: Piece | None = None
        self._bar: Piece | None = None
        self._contested: Piece | None = None
        """A record that ends as abruptly as the other writer's before it: the rest below may be either's."""
        self._in_vain = 0
        """Records in a row that no following line belonged to."""
        self._tangled = 0
        """Lines still to be searched for exceptions of tracebacks that were written through each other."""

    def entries(self) -> Iterator[Entry]:
        """Yield what is worth reading, in the order of the text."""
        while (piece := self._take()) is not None:
            if self._bar is not None and self._bar.key == piece.key and _is_bar(piece.text):
                self._bar = piece if piece.hot else self._bar
                continue
            if not self._is_worth_reading(piece):
                continue
            if _is_bar(piece.text):
                yield from self._flush()
                self._bar = piece
            elif piece.text.startswith(_BATCHES):
                self._batch = piece
            else:
                yield from self._flush()
                yield from self._one(piece)
        yield from self._flush()

    def _is_worth_reading(self, piece: Piece) -> bool:
        if piece.hot or HEAD in piece.text:
            return True
        return self._tangled > 0 and piece.prefix is None and names_exception(piece.text.strip())

    def _flush(self) -> Iterator[Entry]:
        """Yield the batch and the bar that stood last before another entry."""
        held = sorted((one for one in (self._batch, self._bar) if one is not None), key=lambda one: one.line)
        self._batch = self._bar = None
        for piece in held:
            yield piece.entry(self._file)

    def _one(self, piece: Piece) -> Iterator[Entry]:
        if HEAD in piece.text:
            yield from self._traceback(piece)
        elif names_exception(piece.text.strip()):
            yield self._gathered(piece, None if self._tangled else tracebacks.gather(piece, self._peek, self._stands))
        else:
            yield self._record(piece)

    def _traceback(self, piece: Piece) -> Iterator[Entry]:
        found = tracebacks.gather(piece, self._peek, self._stands)
        if not found.tangled and not self._tangled:
            yield self._gathered(piece, found)
            return
        if not self._tangled:
            self._notes.add("tangled_traceback", self._file, piece.line)
        self._tangled = _TANGLED_LINES
        if piece.prefix is not None:  # the head is the rank's own; whose the lines behind it are, nobody knows
            yield piece.entry(self._file)

    def _gathered(self, piece: Piece, found: tracebacks.Gathered | None) -> Entry:
        if found is None:
            return piece.entry(self._file)
        self._drop(found.places)
        return piece.entry(self._file, found.text)

    def _record(self, piece: Piece) -> Entry:
        """Return a record, joined with the lines that it was wrapped over."""
        following = None if piece.prefix is None and self._in_vain > _MOST_IN_VAIN else self._wrapped(piece)
        if following is None:
            self._in_vain += 1
            if not piece.ended and (piece.text[-1:].isdigit() or server_args.is_cut(piece.text.strip())):
                self._notes.add("cut_log", self._file, piece.line, piece.text)
            return piece.entry(self._file)
        self._in_vain = 0
        self._notes.add("wrapped_log_line", self._file, piece.line, piece.text)
        places, text = following
        self._drop(places)
        return piece.entry(self._file, text)

    def _wrapped(self, piece: Piece) -> tuple[list[int], str] | None:
        """Return the places ahead of a record's other lines and the whole text; None where it is as whole as it gets.

        A whole record may be the beginning of a longer one (`context_len=81` and `92, available_gpu_mem=...`): the
        longest that is whole counts.
        """
        first = piece.text.strip()
        whole = self._is_whole(first)
        if piece is self._contested:
            deque(self._continuation(piece), maxlen=0)  # the next record may be torn as well
            return None
        if whole and self._is_whole(f"{first} {_NOT_PART}"):
            return None  # the format has no end of its own: anything would seem to belong to it
        best: tuple[list[int], str] | None = None
        places: list[int] = []
        tried = 0
        texts = [piece.text.lstrip()]
        for place in self._continuation(piece):
            places.append(place)
            ahead = self._peek(place)
            texts.append("" if ahead is None else _outdented(ahead.text, min(ahead.indent, piece.indent)))
            if len(texts) > _FEW and not texts[-1].rstrip().endswith(_ENDS_LONG):
                continue
            tried += 1
            joined = self._joined(texts) if tried <= _MOST_TRIED else None
            if joined is not None:
                best = ([*places], joined)
            elif best is not None or whole or tried > _MOST_TRIED:
                break
        return best

    def _joined(self, texts: list[str]) -> str | None:
        """Return lines put together so that they are a whole record: cut anywhere, at blanks, or at line ends."""
        whole = "".join(texts).rstrip()
        if self._is_whole(whole):
            return whole
        stripped = [text.strip(" \t>") for text in texts]
        gaps = len(texts) - 1
        ways = [*product(("", " "), repeat=gaps)] if gaps <= 2 else [(between,) * gaps for between in ("", " ")]
        for way in [*ways, ("\n",) * gaps] if gaps <= 2 else ways:
            text = stripped[0] + "".join(between + one for between, one in zip(way, stripped[1:], strict=True))
            if self._is_whole(text):
                return text
        return None

    def _continuation(self, piece: Piece) -> Iterator[int]:
        """Yield the places ahead of lines that may go on with this one: its writer's, without a prefix."""
        between = 0
        last = piece.text.rstrip()
        for place in range(_MANY if _LONG.match(piece.text.lstrip()) else _FEW):
            ahead = self._peek(place)
            if ahead is None:
                return
            if ahead.key != piece.key or ahead.prefix is not None:
                between += 1
                if between == 1 and place == 0 and self._is_torn(piece) and self._is_torn(ahead):
                    self._contested = ahead if piece.entry(self._file).ranks != ahead.entry(self._file).ranks else None
                if between > _MOST_BETWEEN or self._is_torn(ahead):
                    return
                continue
            text = ahead.text.strip(" \t>")
            if not text or text.startswith("```") or self._stands(ahead):
                return
            if between and last[-1:] in _FIGURE and text[0] in _FIGURE:
                return  # half a figure that does not stand below its other half may be another's
            last = text
            yield place

    def _is_torn(self, piece: Piece) -> bool:
        """Say whether a record between is cut short too: whose the rest is, nobody knows."""
        return piece.hot and piece.prefix is not None and not self._is_whole(piece.text.strip())

    def _stands(self, piece: Piece) -> bool:
        """Say whether a piece begins an entry of its own."""
        text = piece.text.strip()
        return (
            HEAD in text
            or text.startswith("```")
            or names_exception(text)
            or _is_bar(text)
            or (piece.hot and self._is_whole(text))
        )

    def _take(self) -> Piece | None:
        piece = self._ahead.popleft() if self._ahead else self._pieces.take(context=self._tangled > 0)
        self._tangled = max(0, self._tangled - 1)
        return piece

    def _peek(self, place: int) -> Piece | None:
        while len(self._ahead) <= place:
            piece = self._pieces.take(context=True)
            if piece is None:
                return None
            self._ahead.append(piece)
        return self._ahead[place]

    def _drop(self, places: list[int]) -> None:
        """Take pieces ahead out: they went into an entry."""
        for place in reversed(places):
            del self._ahead[place]


def _outdented(text: str, indent: int) -> str:
    """Return a text without so many blanks at its beginning, and without anything else: what stands behind a CR has
    its line's indentation in name alone."""
    return text[min(indent, len(text) - len(text.lstrip())) :]


def _is_bar(text: str) -> bool:
    return "%|" in text[:_LONGEST_BAR] and len(text) <= _LONGEST_BAR and _BAR.search(text) is not None
