"""Lines and tables on a page of a given width, as text without trailing spaces."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, RenderableType
from rich.text import Text

from sglang_probe.report.plain import printable

WIDTH: Final = 80
ENDLESS: Final = 10_000
"""Width told to rich, which would cut off figures beside too wide a name: lines are folded before they get there."""
LABEL: Final = 10
"""Width of the left column of a header's fields."""


def paragraph(text: object, width: int, indent: str = "", hanging: str | None = None, style: str = "") -> list[Text]:
    """Return `text` made printable and broken into lines; a word longer than a line (a path) stays whole."""
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


def field(label: str, text: object, width: int, style: str = "") -> list[Text]:
    """Return one line of a header: a label and its value, which may take several lines."""
    return paragraph(text, width, label.ljust(LABEL), " " * LABEL, style)


def block(lines: Iterable[str], width: int, indent: str) -> list[Text]:
    """Return lines with each of them indented."""
    return [text for line in lines for text in paragraph(line, width, indent)]


def page(parts: Iterable[Sequence[RenderableType]], colour: bool) -> str:
    """Return the parts as one text, an empty line between them; with `colour`, ANSI escapes of ours alone."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=ENDLESS,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for position, part in enumerate(parts):
        if position:
            console.print()
        for renderable in part:
            console.print(renderable, no_wrap=True, overflow="ignore", crop=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().split("\n")[:-1])
