"""What a rank's memory was spent on, as far as its log says: the rows that were printed, each with its precision.

A log names neither the card's total nor what the driver, the context or other processes hold, so that the rows that are
known do not sum to anything: `unexplained` is unknown, too. Only torch's out-of-memory message names a total; then the
ledger closes as any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from sglang_probe.collect.logs.model import Fact
from sglang_probe.figures import GIB
from sglang_probe.timeline.ledger_model import AsOf, Ledger
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.logs.measured import Measured
from sglang_probe.timeline.logs.steps import Phase
from sglang_probe.timeline.model import Step

NO_TOTAL: Final = "the log names no total of the card"
NOT_PRINTED: Final = "SGLang prints no figure of it"
NOT_YET: Final = "not printed by then"
MOST_DIGITS: Final = 16
"""More of them are no figure of torch's."""
TOGETHER: Final = "printed only as part of what the distributed init took"


class Account:
    """The rows of one rank, filled as its text goes on."""

    def __init__(self, total: Measured | None = None) -> None:
        self.total = total
        self.rows: dict[str, Measured] = {}
        self._init: Measured | None = None

    def take(self, phase: Phase) -> None:
        """Add what a phase took, and what was free when it ended."""
        if phase.state != "ok":
            return
        if phase.phase == "weights.load" and phase.cost is not None:
            self._add("weights_draft" if phase.owner else "weights_target", phase.cost)
        elif phase.phase == "graph.capture" and phase.cost is not None:
            self._add("graphs", phase.cost)
        elif phase.phase == "dist.init":
            self._init = phase.cost
        elif phase.phase == "kv.pool" and phase.held is not None:
            self._add("kv_pool", phase.held)
        if phase.free is not None:
            self.rows["free"] = phase.free

    def _add(self, row: str, size: Measured) -> None:
        self.rows[row] = self.rows[row].plus(size) if row in self.rows else size

    def onto(self, step: Step, as_of: AsOf) -> Step:
        """Return a step with the ledger of this moment."""
        if "free" not in self.rows:
            return step
        rows = dict(self.rows)
        if self.total is not None:
            left = self.total
            for size in rows.values():
                left = left.minus(size)
            rows["unexplained"] = left
        return msgspec.structs.replace(
            step,
            ledger=Ledger(**{name: size.bytes for name, size in rows.items()}),
            ledger_total_bytes=None if self.total is None else self.total.bytes,
            ledger_total_source=None if self.total is None else "device_total_bytes",
            ledger_as_of=as_of,
            ledger_reasons={name: self._why(name) for name in KEYS if name not in rows},
            ledger_precision_bytes={name: size.precision for name, size in rows.items() if size.precision},
        )

    def _why(self, name: str) -> str:
        if name == "unexplained":
            return NO_TOTAL
        if name in {"cuda_context", "communicator", "custom_allreduce"} and self._init is not None:
            return TOGETHER
        return NOT_YET if name in {"weights_target", "kv_pool", "graphs"} else NOT_PRINTED


def with_ledgers(steps: Sequence[Step], phases: Sequence[Phase | None], total: Measured | None) -> list[Step]:
    """Return the steps with their ledgers; `phases` are what they were made of, None for one that took nothing."""
    account = Account(total)
    found = []
    for step, phase in zip(steps, phases, strict=True):
        if phase is None:
            found.append(step)
            continue
        account.take(phase)
        found.append(account.onto(step, "after" if step.free_bytes is not None else "last_known"))
    return found


_CARD: Final = re.compile(r"total capacity of ([\d.]+) GiB|([\d.]+) GiB total capacity")


def card_of(facts: Sequence[Fact]) -> Measured | None:
    """Return the card's total by torch's out-of-memory message, the only one that names it, to two decimals."""
    for fact in facts:
        found = _CARD.search(fact.entry.text) if fact.kind == "out_of_memory" else None
        printed = None if found is None else found[1] or found[2]
        if printed is not None and printed.count(".") == 1 and len(printed) < MOST_DIGITS:
            places = len(printed.partition(".")[2])
            return Measured(round(float(printed) * GIB), math.ceil(GIB / 2 / 10**places))
    return None
