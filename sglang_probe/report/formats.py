"""The kinds of files that a report can be, by the ending of their name: a table, each row a module that writes one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from sglang_probe.report.material import Material


class Writer(Protocol):
    """A module that writes reports of one kind."""

    def write(self, material: Material, path: Path) -> None:
        """Write a report to `path`, which does not exist; OSError where the disk refuses."""


class DirectoryWriter(Writer, Protocol):
    """One that writes directories."""

    def is_ours(self, path: Path) -> bool:
        """Say whether a directory holds what `write` makes and nothing else; OSError where it cannot be looked at."""


class Format(NamedTuple):
    """One row of the table."""

    ending: str
    module: str
    what: str
    is_directory: bool = False
    is_public: bool = False
    """A program of another user's is to read it."""


FORMATS: Final = (
    Format(".html", "sglang_probe.report.html.write", "charts for a person, one file, opens from disk"),
    Format(".json", "sglang_probe.report.document", "the timeline and the findings, for a program"),
    Format(".parquet", "sglang_probe.report.tables.parquet", "a directory of tables, one Parquet file each", True),
    Format(".duckdb", "sglang_probe.report.tables.duck", "the same tables as a DuckDB database"),
    Format(".trace.json", "sglang_probe.report.trace", "slices and counters for Perfetto or chrome://tracing"),
    Format(".prom", "sglang_probe.report.metrics", "metrics in OpenMetrics' text format", is_public=True),
    Format(".png", "sglang_probe.report.image", "the main chart as a picture"),
    Format(".svg", "sglang_probe.report.image", "the main chart as a drawing"),
)


def format_of(name: str) -> Format | None:
    """Return the format that a file name ends in, the longest ending that fits; None where none does."""
    fitting = [one for one in FORMATS if name.lower().endswith(one.ending)]
    return max(fitting, key=lambda one: len(one.ending), default=None)


def writer_of(one: Format) -> Writer:
    """Load the module of a format; ModuleNotFoundError where what it needs is not installed."""
    return cast(Writer, importlib.import_module(one.module))


def ours_of(one: Format) -> Callable[[Path], bool] | None:
    """Return what says whether a directory of this format may be replaced; None where it is a file."""
    return cast(DirectoryWriter, writer_of(one)).is_ours if one.is_directory else None
