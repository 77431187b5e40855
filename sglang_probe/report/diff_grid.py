"""A table with a column a side: names on the left, cells on the right, in as many tables as the page needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from sglang_probe.report.layout import Width, folded, paragraph
from sglang_probe.report.plain import printable

GAP: Final = 2
LEAST_NAME: Final = 22
LEAST_CELL: Final = 9
LEAST_WIDEST: Final = 13
WIDEST_CELL: Final = 26
"""A cell that is wider is broken into lines: one of "interrupted", or of a phase's name, never is."""


class Line(NamedTuple):
    """A row: what it is about, and a cell for each side (and for what has changed, if the table has that)."""

    name: str
    cells: tuple[str, ...]
    style: str = ""


def grid(heading: Line, rows: Sequence[Line], width: Width, indent: str = "") -> list[Text]:
    """Return the rows below their heading. Where not all columns fit, the rest follow in further tables that begin with
    the first column again. Without a width, or on a page that is too narrow for two columns, a row is a sentence, in
    which each cell has its heading in front."""
    if width is None:
        return [text for line in rows for text in paragraph(_sentence(heading, line), width)]
    count = len(heading.cells)
    most = widest(count, width, indent)
    sizes = [_size([line.cells[column] for line in (heading, *rows)], most) for column in range(count)]
    pages = _pages(sizes, width - len(indent) - LEAST_NAME)
    if max(sum(sizes[one] + GAP for one in columns) for columns in pages) > width - len(indent) - LEAST_NAME:
        own = indent or "  "
        return [text for line in rows for text in paragraph(_sentence(heading, line), width, own, own + "  ")]
    shown: list[Text] = []
    for columns in pages:
        room = width - len(indent) - sum(sizes[column] + GAP for column in columns)
        shown += [Text()] if shown else []
        for line in (heading, *rows):
            shown += _line(line, columns, sizes, room, indent)
    return shown


def _sentence(heading: Line, line: Line) -> str:
    cells = zip(heading.cells, line.cells, strict=True)
    return f"{line.name.strip()}: {', '.join(f'{head} {cell}' for head, cell in cells if cell)}"


def widest(count: int, width: int, indent: str = "") -> int:
    """Return the columns that a cell of a table of `count` sides has; a wider one is broken into lines."""
    return max(min((width - len(indent) - LEAST_NAME) // max(count, 1) - GAP, WIDEST_CELL), LEAST_WIDEST)


def _size(cells: Sequence[str], most: int) -> int:
    longest = max((cell_len(printable(cell)) for cell in cells), default=0)
    return min(max(longest, LEAST_CELL), most)


def _pages(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns of each table: the first stands in all of them."""
    pages: list[list[int]] = [[0]]
    for column in range(1, len(sizes)):
        used = sum(sizes[one] + GAP for one in pages[-1])
        if len(pages[-1]) > 1 and used + sizes[column] + GAP > room:
            pages.append([0])
        pages[-1].append(column)
    return pages


def _line(line: Line, columns: Sequence[int], sizes: Sequence[int], room: int, indent: str) -> list[Text]:
    text = printable(line.name)
    own = text[: len(text) - len(text.lstrip(" "))]
    name = folded(text, max(room, LEAST_NAME), own, own + "  ", break_words=True) or [""]
    cells = [folded(printable(line.cells[one]), sizes[one], "", "", break_words=True) or [""] for one in columns]
    parts = []
    for first, *others in zip_longest(name, *cells, fillvalue=""):
        placed = zip(columns, others, strict=True)
        right = "".join(" " * (GAP + sizes[one] - cell_len(cell)) + cell for one, cell in placed)
        left = first + " " * max(max(room, LEAST_NAME) - cell_len(first), 0)
        parts.append(Text(f"{indent}{left}{right}".rstrip(), style=line.style))
    return parts
