"""Writes the tables as a DuckDB database, every table and column with its meaning as a comment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from sglang_probe.report.material import Material
from sglang_probe.report.tables.made import tables_of
from sglang_probe.report.tables.spec import Table


def write(material: Material, path: Path) -> None:
    """Write the database file `path`; DuckDB takes the columns as they lie in memory. OSError where it cannot write."""
    try:
        os.fspath(path).encode()
        _fill(material, path)
    except UnicodeEncodeError as error:
        raise OSError("DuckDB takes no name that is not UTF-8") from error
    except duckdb.IOException as error:
        raise OSError(next(iter(str(error).splitlines()), "DuckDB says no more")) from error


def _fill(material: Material, path: Path) -> None:
    with duckdb.connect(str(path)) as database:
        database.begin()  # a commit for each of the comments would take a second
        for table, pieces in tables_of(material):
            _write(database, table, pieces)
        database.commit()


def _write(database: Any, table: Table, pieces: Iterable[Any]) -> None:
    columns = ", ".join(
        f'"{column.name}" {column.kind.sql}{" NOT NULL" if column.required else ""}' for column in table.columns
    )
    database.execute(f"CREATE TABLE {table.name} ({columns})")
    for piece in pieces:
        database.register("piece", piece)
        database.execute(f"INSERT INTO {table.name} SELECT * FROM piece")
        database.unregister("piece")
    database.execute(f"COMMENT ON TABLE {table.name} IS {_quoted(table.meaning)}")
    for column in table.columns:
        database.execute(f'COMMENT ON COLUMN {table.name}."{column.name}" IS {_quoted(column.comment)}')


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
