"""Writes the tables as Parquet files, one each, in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

import sglang_probe
from sglang_probe.report.material import Material
from sglang_probe.report.tables.made import TABLES, tables_of
from sglang_probe.report.tables.runs import ABOUT
from sglang_probe.report.tables.spec import SCHEMA

_SCHEMA_KEY: Final = "sglang_probe.schema"
ENDING: Final = ".parquet"


def write(material: Material, path: Path) -> None:
    """Write the directory `path`: `runs.parquet`, `steps.parquet`, ... Every file says what wrote it, every column what
    it means (in its metadata)."""
    path.mkdir()
    told = {_SCHEMA_KEY: SCHEMA, "sglang_probe.version": sglang_probe.__version__}
    for table, pieces in tables_of(material):
        schema = table.schema.with_metadata({**table.schema.metadata, **told})
        name = path / f"{table.name}{ENDING}"
        # A file of Python's: Arrow opens no name that is not UTF-8.
        with name.open("wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for piece in pieces:
                writer.write_table(piece.replace_schema_metadata(schema.metadata))


def is_ours(path: Path) -> bool:
    """Say whether a directory holds tables that `write` made, `about` among them, and nothing else: files of those
    names that say so themselves. OSError where it cannot be looked at."""
    known = {f"{table.name}{ENDING}" for table in TABLES}
    found = list(path.iterdir())
    names = {one.name for one in found}
    return f"{ABOUT.name}{ENDING}" in names and names <= known and all(map(_says_so, found))


def _says_so(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            told = pq.read_schema(file).metadata or {}
    except pa.ArrowException:
        return False
    return _SCHEMA_KEY.encode() in told
