"""Lines on a page of a given width, as text without trailing spaces; or on none: then a sentence is a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from sglang_probe.report.plain import printable

WIDTH: Final = 80
Width = int | None
"""Columns of a page; None: plain, for a screen reader: no line is broken, nothing is indented or stands in columns."""
LABEL: Final = 10
"""Width of the left column of a header's fields."""


def paragraph(text: object, width: Width, indent: str = "", hanging: str | None = None, style: str = "") -> list[Text]:
    """Return `text` made printable and broken into lines; a word longer than a line (a path) stays whole."""
    if width is None:
        return [Text(" ".join(filter(None, printable(text).split(" "))), style=style)]
    lines = folded(printable(text), width, indent, indent if hanging is None else hanging)
    return [Text(line, style=style) for line in lines]


def folded(text: str, width: int, indent: str, hanging: str, *, break_words: bool = False) -> list[str]:
    """Return `text` in lines of at most `width` columns, as a terminal counts them: a character takes none, one or two.

    A word that is longer than a line stays whole (a path is to be copied), or is cut into pieces with `break_words`.
    """
    lines: list[str] = []
    line, start = "", indent
    for word in _words(text, width - max(len(indent), len(hanging)), break_words):
        longer = f"{line} {word}" if line else word
        if line and cell_len(start) + cell_len(longer) > width:
            lines.append(start + line)
            line, start = word, hanging
        else:
            line = longer
    return [*lines, start + line] if line else lines


def _words(text: str, room: int, break_words: bool) -> Iterator[str]:
    for word in text.split(" "):
        if word:
            yield from chop_cells(word, max(room, 1)) if break_words else [word]


def field(label: str, text: object, width: Width, style: str = "") -> list[Text]:
    """Return one line of a header: a label and its value, which may take several lines."""
    if width is None:
        return paragraph(f"{label}: {text}", width, style=style)
    return paragraph(text, width, label.ljust(LABEL), " " * LABEL, style)


def block(lines: Iterable[str], width: Width, indent: str) -> list[Text]:
    """Return lines with each of them indented."""
    return [text for line in lines for text in paragraph(line, width, indent)]


def page(parts: Iterable[Sequence[Text]], colour: bool) -> str:
    """Return the parts as one text, an empty line between them; with `colour`, ANSI escapes of ours alone."""
    line_of = _coloured if colour else _uncoloured
    return "\n".join("".join(f"{line_of(line)}\n" for line in part) for part in parts)


def _uncoloured(line: Text) -> str:
    return line.plain.rstrip()


def _coloured(line: Text) -> str:
    """Return a line with its escapes. By its segments: to print through a console takes thirty times as long."""
    line = line.copy()
    line.rstrip()
    own = _CONSOLE.get_style(line.style)
    pieces = ((segment.text, segment.style or own) for segment in line.render(_CONSOLE))
    return "".join(style.render(text, color_system=ColorSystem.STANDARD) if text else "" for text, style in pieces)


_CONSOLE: Final = Console(file=None, force_terminal=True, color_system="standard", markup=False, _environ={})
"""Looks up the names of styles."""
