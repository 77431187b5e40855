"""The ledger as a table: long, a row a category.

Long and not wide: bytes, why they are NULL and how exact they are stand side by side, sums and shares are one GROUP BY,
and a new category is no new column. Built by repeating numbers of rows, so 4 million rows take a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, SECONDS, WORD, Kind, array_of
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Get, Table
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Step
from sglang_probe.timeline.processes import last_ledger

WIDTH: Final = len(KEYS)


def _frame(facts: Facts) -> Frame:
    """Take every step that has a ledger: `spread` numbers the step of each row."""
    steps: list[Step] = []
    told: dict[str, list[Any]] = {"step_index": [], "begun_s": [], "is_last": []}
    sizes = []
    for seat, begun in zip(facts.seats, facts.begun_s, strict=True):
        last = last_ledger(seat.process)
        known = [index for index, step in enumerate(seat.process.steps) if step.ledger is not None]
        sizes.append(len(known) * WIDTH)
        steps += [seat.process.steps[index] for index in known]
        told["step_index"] += known
        told["begun_s"] += [begun[index] for index in known]
        told["is_last"] += [seat.process.steps[index] is last for index in known]
    spread = pa.array(np.repeat(np.arange(len(steps), dtype=np.int32), WIDTH))
    return Frame(steps, facts, facts.spread(sizes), {**told, "spread": spread})


def _spread(kind: Kind, get: Get) -> Get:
    """Return what repeats a step's value for each of its rows."""

    def spread(frame: Frame) -> Iterable[Any]:
        found: Iterable[Any] = array_of(kind, get(frame)).take(frame.beside["spread"])
        return found

    return spread


def _of_step(name: str, kind: Kind, meaning: str, path: str | None = None, *, required: bool = False) -> Column:
    get = attrgetter(path or name)
    return Column(name, kind, meaning, _spread(kind, lambda frame: map(get, frame.rows)), required)


def _told(name: str, kind: Kind, meaning: str, *, required: bool = False) -> Column:
    return Column(name, kind, meaning, _spread(kind, lambda frame: frame.beside[name]), required)


def _end(frame: Frame) -> Iterable[Any]:
    return [
        None if begun is None or step.duration_s is None else begun + step.duration_s
        for begun, step in zip(frame.beside["begun_s"], frame.rows, strict=True)
    ]


def _category(frame: Frame) -> Any:
    codes = np.tile(np.arange(WIDTH, dtype=np.int32), len(frame.rows))
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(KEYS))


def _held(frame: Frame) -> Iterable[Any]:
    ledgers: Sequence[Any] = [step.ledger for step in frame.rows]
    return chain.from_iterable(map(msgspec.structs.astuple, ledgers))


def _of_category(path: str) -> Get:
    get = attrgetter(path)

    def values(frame: Frame) -> Iterable[Any]:
        for said in map(get, frame.rows):
            yield from map(said.get, KEYS) if said else _NONE

    return values


_NONE: Final = (None,) * WIDTH
LEDGER: Final = Table(
    "ledger",
    "what a device's memory was spent on at the end of each step, a row a category: those that are known sum to the total",
    "a category at the end of a step (`process`, `step_index`, `category` name it)",
    (
        *OWNER,
        _told("step_index", COUNT, "the step: `steps.step_index`", required=True),
        _of_step("step_id", WORD, "its id", "id", required=True),
        _of_step("phase", WORD, "its phase", required=True),
        Column("end_s", SECONDS, "when it ended, since the run began; NULL where it did not", _spread(SECONDS, _end)),
        _told(
            "is_last",
            FLAG,
            "it is the last ledger of the process: what the memory is spent on in the end",
            required=True,
        ),
        _of_step("as_of", WORD, "after: read at the step's end; last_known: before it", "ledger_as_of"),
        Column("category", WORD, f"one of {', '.join(KEYS)}", _category, required=True),
        Column(
            "held_bytes", BYTES, "what it holds; NULL: unknown, and so in `unexplained`, which may be negative", _held
        ),
        Column("reason", WORD, "why it is NULL", _of_category("ledger_reasons")),
        Column(
            "precision_bytes",
            BYTES,
            "how far off a log's figure may be; NULL: exact",
            _of_category("ledger_precision_bytes"),
        ),
        _of_step("total_bytes", BYTES, "the device's memory; NULL in a log, which names none", "ledger_total_bytes"),
        _of_step("total_source", WORD, "nvml_total_bytes or device_total_bytes", "ledger_total_source"),
    ),
    _frame,
)
