"""What the sides were made of: a sentence a difference where they are two, a table where they are more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.structured import brief, differing
from sglang_probe.explain.diff.wording import STRUCTURED, shown, texts_of, title, told
from sglang_probe.figures import UNKNOWN, listed
from sglang_probe.report.diff_grid import Line, grid, widest
from sglang_probe.report.layout import Width, paragraph

INDENT: Final = "  "
NOT_GIVEN: Final = "not given"


def made_lines(rows: Sequence[Row], sides: Sequence[str], width: Width) -> list[Text]:
    """Return the rows of one group that differ and count."""
    if len(sides) == 2:
        return [text for row in rows for text in paragraph(told(row), width, INDENT * 2, INDENT * 4)]
    lines = [line for row in rows for line in made_rows(row)]
    most = None if width is None else widest(len(sides), width, INDENT * 2)
    fits = [line for line in lines if most is None or max(map(cell_len, line.cells)) <= most]
    table = grid(Line("", tuple(sides)), fits, width, INDENT * 2) if fits else []
    return [*table, *(text for line in lines if line not in fits for text in _by_value(line, sides, width))]


def made_rows(row: Row) -> Iterator[Line]:
    """Yield a row of the table; of a value with parts a row for each part that differs."""
    parts = differing(row.values) if row.group in STRUCTURED else []
    for part in parts:
        yield Line(f"{title(row)} {part.path}", tuple(brief(text, UNKNOWN) for text in part.texts))
    if not parts:
        yield Line(title(row), tuple(_cells(row)))


def _cells(row: Row) -> Iterator[str]:
    """Yield a cell a side: of a flag that a side was not given what is in effect there."""
    if row.group != "arguments given" or row.effective is None:
        yield from texts_of(row, row.values)
        return
    for given, made in zip(row.values, row.effective, strict=True):
        yield f"{NOT_GIVEN} ({shown(row, made)})" if given is None and made is not None else shown(row, given)


def _by_value(line: Line, sides: Sequence[str], width: Width) -> list[Text]:
    """Return what no column holds as a list: each value, and the sides that have it."""
    by_value: dict[str, list[Any]] = {}
    for name, value in zip(sides, line.cells, strict=True):
        by_value.setdefault(value, []).append(name)
    lines = paragraph(line.name, width, INDENT * 2)
    for value, names in by_value.items():
        lines += paragraph(f"{listed(names, len(names))}: {value}", width, INDENT * 3, INDENT * 4)
    return lines
