"""Writes the tables as Parquet files, one each, in a directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

import sglang_probe
from sglang_probe.report.material import Material
from sglang_probe.report.tables.made import tables_of
from sglang_probe.report.tables.spec import SCHEMA


def write(material: Material, path: Path) -> None:
    """Write the directory `path`: `runs.parquet`, `steps.parquet`, ... Every file says what wrote it, every column what
    it means (in its metadata)."""
    path.mkdir()
    told = {"sglang_probe.schema": SCHEMA, "sglang_probe.version": sglang_probe.__version__}
    for table, pieces in tables_of(material):
        schema = table.schema.with_metadata({**table.schema.metadata, **told})
        name = path / f"{table.name}.parquet"
        # A file of Python's: Arrow opens no name that is not UTF-8.
        with name.open("wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for piece in pieces:
                writer.write_table(piece.replace_schema_metadata(schema.metadata))
