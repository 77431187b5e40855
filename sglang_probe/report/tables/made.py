"""All tables, in the order in which they are described, and what makes them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sglang_probe.collect.quiet import no_garbage_collection
from sglang_probe.report.material import Material
from sglang_probe.report.tables.budget import BUDGET, POOLS
from sglang_probe.report.tables.events import EVENTS
from sglang_probe.report.tables.findings import FINDINGS, LEVERS
from sglang_probe.report.tables.ledger import LEDGER
from sglang_probe.report.tables.processes import NEIGHBOURS, PRE_LOAD, PROCESSES, TARGETS
from sglang_probe.report.tables.runs import ABOUT, LOSSES, REMARKS, RUNS
from sglang_probe.report.tables.spec import Table, Whole, pieces_of
from sglang_probe.report.tables.steps import STEPS

TABLES: Final = (
    RUNS, PROCESSES, STEPS, LEDGER, BUDGET, POOLS, PRE_LOAD, FINDINGS, LEVERS, NEIGHBOURS, EVENTS, TARGETS, REMARKS,
    LOSSES, ABOUT,
)  # fmt: skip


class Made(NamedTuple):
    """A table and its content."""

    table: Table
    pieces: Iterator[Any]
    """Its content, one `pyarrow.Table` after the other; at least one."""


def tables_of(material: Material) -> Iterator[Made]:
    """Yield every table with its content, one at a time. The same material gives the same rows in the same order."""
    with no_garbage_collection():
        pieces = pieces_of(Whole(material))
        for table in TABLES:
            yield Made(table, table.made(pieces))
