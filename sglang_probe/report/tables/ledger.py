"""The ledger as a table: long, a row a category.

Long and not wide: bytes, why they are NULL and how exact they are stand side by side, sums and shares are one GROUP BY,
and a new category is no new column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, SECONDS, WORD
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Part, Table, each, of
from sglang_probe.report.tables.steps import Placed, end_s, placed
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.processes import last_ledger

_WIDTH: Final = len(KEYS)
_SILENT: Final = (None,) * _WIDTH


class _Closed(NamedTuple):
    """A step that has a ledger."""

    placed: Placed
    is_last: bool


def _frame(facts: Facts) -> Frame:
    found = []
    for seat, steps in zip(facts.seats, placed(facts), strict=True):
        last = last_ledger(seat.process)
        found.append([_Closed(one, one.step is last) for one in steps if one.step.ledger is not None])
    closed = list(chain.from_iterable(found))
    numbers = range(len(closed))
    steps_of_rows = chain.from_iterable(repeat(number, _WIDTH) for number in numbers)
    keys_of_rows = list(range(_WIDTH)) * len(closed)
    parts = {
        "owner": facts.owners(len(some) * _WIDTH for some in found),
        "closed": Part(closed, pa.array(steps_of_rows, pa.int32())),
        "category": Part(KEYS, pa.array(keys_of_rows, pa.int32())),
    }
    return Frame([one.placed.step for one in closed], parts)


def _held(steps: Iterable[Any]) -> Iterable[int | None]:
    return chain.from_iterable(map(msgspec.structs.astuple, map(attrgetter("ledger"), steps)))


def _reasons(steps: Iterable[Any]) -> Iterator[str | None]:
    return _by_category(step.ledger_reasons for step in steps)


def _precisions(steps: Iterable[Any]) -> Iterator[int | None]:
    return _by_category(step.ledger_precision_bytes for step in steps)


def _by_category(told: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Yield what is told of each category; most ledgers are exact, and nothing is told of them."""
    return chain.from_iterable(map(one.get, KEYS) if one else _SILENT for one in told)


LEDGER: Final = Table(
    "ledger",
    "what a device's memory was spent on at the end of each step: the categories that are known sum to the total",
    "a category at the end of a step (`process`, `step_index`, `category` name it)",
    (
        *OWNER,
        *of(
            "closed",
            Column("step_index", COUNT, "the step: `steps.step_index`", "placed.number", required=True),
            Column("step_id", WORD, "its id", "placed.step.id", required=True),
            Column("phase", WORD, "its phase", "placed.step.phase", required=True),
            Column("end_s", SECONDS, "when it ended, since the run began", each(lambda one: end_s(one.placed))),
            Column("is_last", FLAG, "the process's last ledger: what its memory is spent on in the end", required=True),
            Column("as_of", WORD, "after: read at the step's end; last_known: before it", "placed.step.ledger_as_of"),
        ),
        *of("category", Column("category", WORD, f"one of {', '.join(KEYS)}", each(str), required=True)),
        Column("held_bytes", BYTES, "NULL: unknown, and so in `unexplained`, which may be negative", _held),
        Column("reason", WORD, "why it is NULL", _reasons),
        Column("precision_bytes", BYTES, "how far off a log's figure may be; NULL: exact", _precisions),
        *of(
            "closed",
            Column("total_bytes", BYTES, "the device's; NULL: a log names none", "placed.step.ledger_total_bytes"),
            Column("total_source", WORD, "who says so", "placed.step.ledger_total_source"),
        ),
    ),
    _frame,
)
