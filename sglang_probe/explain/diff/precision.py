"""What a side that was read from a log can tell, and how exactly: differences below that are none that anybody knows.

Worked example: 12.22 GiB free in a log and 12.217 in events: 0.003 apart, and the log's figure is good to 0.005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from sglang_probe.explain.diff.values import SAME_ON_A_CARD, near
from sglang_probe.timeline.arithmetic import estimate_of
from sglang_probe.timeline.model import Run, Step, Worker

PRINTED: Final = frozenset({"dist.init", "weights.load", "graph.capture"})
"""Phases of which SGLang prints the end, and of pools that of all together."""
_OF_PRE_LOAD: Final = frozenset({"pre_load_bytes", "pre_load_local_bytes", "slack_bytes"})
AS_FAR: Final = "the same as far as the log tells"


def is_log(run: Run) -> bool:
    """Say whether all that is known of a run is its log."""
    return run.source == "log"


def is_printed(phase: str, detail: str | None) -> bool:
    """Say whether a log would have a line of a step."""
    return (phase in PRINTED and detail != "all") or (phase, detail) == ("kv.pool", "all")


def of_steps(steps: Sequence[Step | None]) -> int:
    """Return how far off the difference of steps' costs may be, in bytes."""
    return sum(step.precision_bytes or 0 for step in steps if step is not None)


def of_rows(steps: Sequence[Step | None], category: str) -> int:
    """Return how far off the difference of a ledger's row may be, in bytes."""
    return sum(step.ledger_precision_bytes.get(category, 0) for step in steps if step is not None)


def of_term(workers: Sequence[Worker | None], term: str, *, mixed: bool = False) -> int:
    """Return how far off the difference of a term of the budget may be, in its own unit.

    `mixed`: events stand beside a log. What a log prints before the weights is an estimate of the pre-load memory: two
    logs estimate it alike, but against events it may be off by as much as the tokens leave open.
    """
    return sum(_of_term(worker, term, mixed=mixed) for worker in workers if worker is not None)


def _of_term(worker: Worker, term: str, *, mixed: bool) -> int:
    told = None if worker.budget is None else worker.budget.precisions.get(term)
    open_ = estimate_of(worker.budget) if mixed and worker.budget is not None and term in _OF_PRE_LOAD else None
    if open_ is not None and worker.budget is not None:
        share = 1 - (worker.budget.mem_fraction_static or 0) if term == "slack_bytes" else 1
        return max(round(told or 0), math.ceil(open_ * share))
    if told is None and term == "bytes_per_token" and worker.kv is not None:
        told = worker.kv.bytes_per_token_precision
    return round(told or 0)


def alike(values: Sequence[int | None], precision: int) -> bool:
    """Say whether bytes are the same: on a card, and as far as the figures tell."""
    return near(values, max(SAME_ON_A_CARD, precision + 1))
