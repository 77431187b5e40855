"""Writes the tables as a DuckDB database, every table and column with its meaning as a comment."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import duckdb

from sglang_probe.report.material import Material
from sglang_probe.report.tables.made import tables_of
from sglang_probe.report.tables.spec import Table

_REFUSALS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)
"""What DuckDB passes on in words alone."""


def write(material: Material, path: Path) -> None:
    """Write the database file `path`; DuckDB takes the columns as they lie in memory.

    Raises:
        OSError: DuckDB cannot write it, or what it wrote is not whole.
        MemoryError: DuckDB has too little.
    """
    _check_name(path)
    try:
        _check(path, _fill(material, path))
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise _refused(error) from error


def _check_name(path: Path) -> None:
    text = os.fspath(path)
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        raise OSError("DuckDB takes no path that is not UTF-8")
    if "?" in text:
        raise OSError("DuckDB takes no path with a ? in it")


def _refused(error: duckdb.Error) -> OSError:
    says = next(iter(str(error).splitlines()), "DuckDB says no more")
    code = next((one for one in _REFUSALS if os.strerror(one) in says), None)
    return OSError(says) if code is None else OSError(code, os.strerror(code))


def _fill(material: Material, path: Path) -> dict[str, int]:
    """Write all tables, and return how many rows each has."""
    rows: dict[str, int] = {}
    with duckdb.connect(str(path)) as database:
        database.begin()  # a commit for each of the comments would take a second
        for table, pieces in tables_of(material):
            rows[table.name] = _write(database, table, pieces)
        database.commit()
        database.execute("CHECKPOINT")  # else the rows may stay in a file beside, and closing says of no error
    return rows


def _check(path: Path, rows: dict[str, int]) -> None:
    """Check that the file alone holds all that was written: it is what will be taken away from here."""
    beside = path.with_name(f"{path.name}.wal")
    with duckdb.connect(str(path), read_only=True) as database:
        known = {name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        found = {name: _count(database, name) for name in rows if name in known}
    if beside.exists() or found != rows:
        raise OSError("the database is not whole: the disk may be full")


def _count(database: Any, name: str) -> int:
    found: tuple[int] = database.execute(f"SELECT count(*) FROM {name}").fetchone()
    return found[0]


def _write(database: Any, table: Table, pieces: Iterable[Any]) -> int:
    columns = ", ".join(
        f'"{column.name}" {column.kind.sql}{" NOT NULL" if column.required else ""}' for column in table.columns
    )
    database.execute(f"CREATE TABLE {table.name} ({columns})")
    rows = 0
    for piece in pieces:
        database.register("piece", piece)
        database.execute(f"INSERT INTO {table.name} SELECT * FROM piece")
        database.unregister("piece")
        rows += piece.num_rows
    database.execute(f"COMMENT ON TABLE {table.name} IS {_quoted(table.meaning)}")
    for column in table.columns:
        database.execute(f'COMMENT ON COLUMN {table.name}."{column.name}" IS {_quoted(column.comment)}')
    return rows


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
