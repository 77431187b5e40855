"""Parquet and DuckDB hold the same rows, say what wrote them, and what every column means."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import sglang_probe
from sglang_probe.report.material import Material
from sglang_probe.report.tables import duck, parquet
from sglang_probe.report.tables.made import TABLES
from sglang_probe.report.tables.spec import SCHEMA
from tests.report.tables.conftest import by_hand

duckdb = pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")


def written(material: Material, directory: Path) -> tuple[Path, Path]:
    made = directory / "run.parquet", directory / "run.duckdb"
    parquet.write(material, made[0])
    duck.write(material, made[1])
    return made


def rows_of(database: Any, source: str) -> list[Any]:
    found: list[Any] = database.execute(f"SELECT * FROM {source}").fetchall()
    return found


def test_the_database_and_the_files_hold_the_same_rows_in_the_same_order(material: Material, tmp_path: Path) -> None:
    files, database = written(material, tmp_path)

    with duckdb.connect(str(database), read_only=True) as connection:
        for table in TABLES:
            assert rows_of(connection, table.name) == rows_of(connection, f"'{files}/{table.name}.parquet'")
    assert sorted(path.name for path in files.iterdir()) == sorted(f"{table.name}.parquet" for table in TABLES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.duckdb", "run.parquet"]


def test_the_same_material_makes_the_same_files(material: Material, tmp_path: Path) -> None:
    parquet.write(material, tmp_path / "first.parquet")
    parquet.write(material, tmp_path / "second.parquet")

    for path in (tmp_path / "first.parquet").iterdir():
        assert path.read_bytes() == (tmp_path / "second.parquet" / path.name).read_bytes()


def test_of_nothing_the_files_have_every_column(tmp_path: Path) -> None:
    files, database = written(by_hand(), tmp_path)

    with duckdb.connect(str(database), read_only=True) as connection:
        for table in TABLES:
            names = [column.name for column in table.columns]
            assert names == [row[0] for row in rows_of(connection, f"(DESCRIBE {table.name})")]
            assert names == pq.read_schema(files / f"{table.name}.parquet").names
    assert rows_of(duckdb, f"'{files}/about.parquet'")[0][0] == SCHEMA


def test_every_table_and_column_of_the_database_says_what_it_means(tmp_path: Path) -> None:
    _, database = written(by_hand(), tmp_path)

    with duckdb.connect(str(database), read_only=True) as connection:
        tables = dict(rows_of(connection, "(SELECT table_name, comment FROM duckdb_tables())"))
        columns = {
            (table, name): (comment, sql)
            for table, name, comment, sql in rows_of(
                connection,
                "(SELECT table_name, column_name, comment, data_type FROM duckdb_columns() WHERE NOT internal)",
            )
        }
    assert tables == {table.name: table.meaning for table in TABLES}
    told = {(table.name, one.name): (one.comment, one.kind.sql) for table in TABLES for one in table.columns}
    assert columns == told


def test_every_parquet_file_says_its_schema_what_wrote_it_and_what_its_columns_mean(tmp_path: Path) -> None:
    files, _ = written(by_hand(), tmp_path)

    for table in TABLES:
        schema = pq.read_schema(files / f"{table.name}.parquet")
        told = {key.decode(): value.decode() for key, value in schema.metadata.items()}
        assert told["sglang_probe.schema"] == SCHEMA == "tables/1.0"
        assert told["sglang_probe.version"] == sglang_probe.__version__
        assert told["comment"] == table.meaning
        for one in table.columns:
            assert schema.field(one.name).metadata[b"comment"].decode() == one.comment


def test_what_the_disk_refuses_is_an_os_error(tmp_path: Path) -> None:
    for writer in (duck, parquet):
        with pytest.raises(OSError, match="absent"):
            writer.write(by_hand(), tmp_path / "absent" / "run")


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        ("TransactionException", OSError),
        ("IOException", OSError),
        ("FatalException", OSError),
        ("InternalException", OSError),
        ("OutOfMemoryException", MemoryError),
    ],
)
def test_every_error_of_duckdbs_says_what_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str, wanted: type[Exception]
) -> None:
    def refuse(*_: object) -> None:
        raise getattr(duckdb, raised)(f"Failed to commit: could not write: {os.strerror(errno.ENOSPC)}\nand more")

    monkeypatch.setattr(duck, "_fill", refuse)

    with pytest.raises(wanted) as found:
        duck.write(by_hand(), tmp_path / "run.duckdb")
    assert getattr(found.value, "errno", errno.ENOSPC) == errno.ENOSPC


@pytest.mark.parametrize("missing", ["a table", "rows"])
def test_a_database_that_is_not_whole_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    fill = duck._fill

    def less(material: Material, path: Path) -> dict[str, int]:
        rows = fill(material, path)
        with duckdb.connect(str(path)) as database:
            database.execute("DROP TABLE about" if missing == "a table" else "DELETE FROM about")
        return rows

    monkeypatch.setattr(duck, "_fill", less)
    with pytest.raises(OSError, match="not whole"):
        duck.write(by_hand(), tmp_path / "run.duckdb")


def test_a_directory_is_ours_where_it_holds_our_tables_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    parquet.write(by_hand(), path)
    assert parquet.is_ours(path)

    (path / "steps.parquet").unlink()  # of an earlier version, which had fewer
    assert parquet.is_ours(path)
    (path / "steps.parquet").symlink_to(path / "runs.parquet")
    assert not parquet.is_ours(path)
    (path / "steps.parquet").unlink()
    (path / "about.parquet").unlink()
    assert not parquet.is_ours(path)


def test_a_name_that_is_not_utf8_is_written_or_refused(tmp_path: Path) -> None:
    parquet.write(by_hand(), tmp_path / "run\udcff.parquet")
    with pytest.raises(OSError, match="not UTF-8"):
        duck.write(by_hand(), tmp_path / "run\udcff.duckdb")

    assert [path.name for path in tmp_path.iterdir()] == ["run\udcff.parquet"]
