"""The tables in words, as docs/data.md has them: generated from what makes the tables, so that they cannot part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_probe.report.tables.made import TABLES
from sglang_probe.report.tables.spec import OWNER, RUN, Column, Table


def described() -> str:
    """Return all tables in Markdown: what a row is, then type, unit, NULL and meaning of every column."""
    return "\n".join(line for table in TABLES for line in _table(table))


def markdown(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as a Markdown table."""
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield f"{_sentence(table.meaning)} One row: {table.one_row}.\n"
    shared = next((key for key in (OWNER, RUN) if tuple(table.columns[: len(key)]) == key), ())
    if shared:
        yield f"Begins with {', '.join(f'`{column.name}`' for column in shared)} (see above).\n"
    yield markdown(("column", "type", "unit", "NULL", "meaning"), [_row(one) for one in table.columns[len(shared) :]])


def keys() -> str:
    """Return the columns that tables share, in Markdown."""
    return markdown(("column", "type", "unit", "NULL", "meaning"), [_row(column) for column in OWNER])


def _row(column: Column) -> tuple[str, ...]:
    kind = column.kind
    return f"`{column.name}`", kind.sql, kind.unit, "no" if column.required else "yes", column.meaning


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _cell(value: object) -> str:
    text = "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("|", "\\|")
