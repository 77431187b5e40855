"""What the page draws of one rank: its memory over time, in columns of bytes, and its steps on the same clock."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sglang_probe.figures import gib, listed
from sglang_probe.report.ledger import REASONS
from sglang_probe.report.plain import printable
from sglang_probe.report.series import (
    FREE,
    IN_USE,
    LOG_SUM,
    NOT_TOLD,
    ON_THE_HOST,
    UNEXPLAINED,
    Moment,
    RunClock,
    categories,
    moments,
    not_told_apart,
)
from sglang_probe.report.steps import step_name
from sglang_probe.timeline.ledger_rows import NAMES
from sglang_probe.timeline.model import Process, Run, Step
from sglang_probe.timeline.processes import is_cpu, ranks_of

OF_TORCH: Final = ("weights_target", "weights_draft", "custom_allreduce", "kv_pool")
"""Categories whose figure a reader meets again as a cost."""
DIGITS: Final = 6
"""Of seconds: a microsecond is more than a chart shows."""
DEVICE_LOST: Final = (
    "a category holds what torch allocated for it, a cost (of a phase, or in the budget) is what the device lost: whole"
    " blocks, so the two may differ, as docs/ledger.md says"
)


class Names:
    """The names of steps, each kept once: 512 ranks have the same ones."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Return the place of a name in `all`."""
        return self._places.setdefault(name, len(self._places))

    @property
    def all(self) -> list[str]:
        """Return the names in the order in which they came."""
        return list(self._places)


def stacked(run: Run) -> list[str]:
    """Return the categories of a run from the bottom of the chart to its top: what is free stands below the ceiling."""
    found = [*categories(run), *([IN_USE] if any(map(_has_in_use, ranks_of(run))) else [])]
    return sorted(found, key=lambda key: key == FREE)


def _has_in_use(process: Process) -> bool:
    last = next((step for step in reversed(process.steps) if step.ledger is not None), None)
    return last is not None and (is_cpu(process) or last.ledger_total_bytes is None)


def memory_data(run: Run, process: Process, clock: RunClock, keys: Sequence[str], names: Names) -> dict[str, Any]:
    """Return the memory and the steps of a rank: bytes as in `timeline --format json`, seconds since the run began.

    `held` has a column for each of `keys` that this rank can have, `total` and `at` one figure for each moment; `why`
    says why there is none. `called` has the names of columns that are no categories.
    """
    found = moments(process, clock)
    held, called = _held(process, found, keys)
    return {
        "at": [_second(moment.at_s) for moment in found],
        "total": [moment.total_bytes for moment in found],
        "held": held,
        "called": called,
        "read_at": [names.place(step_name(moment.step)) for moment in found],
        "off": {**found[-1].step.ledger_precision_bytes, **({IN_USE: LOG_SUM} if NOT_TOLD in called.values() else {})}
        if found
        else {},
        "why": None if found else _why_none(process),
        "notes": list(_notes(run, process, found)),
        "steps": _steps(process, clock, names),
    }


def _held(
    process: Process, found: Sequence[Moment], keys: Sequence[str]
) -> tuple[dict[str, list[int | None]], dict[str, str]]:
    """Return a column of bytes for each category, and for what cannot be told apart, with the name of the latter."""
    held = {key: [getattr(moment.ledger, key) for moment in found] for key in keys if key != IN_USE}
    if is_cpu(process):
        others = [column for key, column in held.items() if key != FREE]
        in_use = [sum(amount or 0 for amount in row) for row in zip(*others, strict=True)]
        return {IN_USE: [*in_use], **({FREE: held[FREE]} if FREE in held else {})}, {IN_USE: ON_THE_HOST}
    missing = not_told_apart(found)
    return {**held, **({IN_USE: [*missing]} if missing else {})}, {IN_USE: NOT_TOLD} if missing else {}


def _steps(process: Process, clock: RunClock, names: Names) -> dict[str, list[Any]]:
    steps = process.steps
    return {
        "name": [names.place(step_name(step)) for step in steps],
        "depth": [step.depth for step in steps],
        "state": [step.state for step in steps],
        "begin": [_second(clock.begin_s(process, step)) for step in steps],
        "end": [_second(clock.end_s(process, step)) for step in steps],
        "seconds": [_second(step.duration_s) for step in steps],
        "before": [step.free_before_bytes for step in steps],
        "free": [step.free_bytes for step in steps],
        "cost": [step.cost_bytes for step in steps],
        "off": [step.precision_bytes for step in steps],
    }


def _second(at: float | None) -> float | None:
    return None if at is None or not math.isfinite(at) else round(at, DIGITS)


def _why_none(process: Process) -> str:
    """Say why nothing can be drawn of a rank."""
    if not process.steps:
        return "no memory step of this rank was recorded, so there is nothing to draw"
    ledgers = [step for step in process.steps if step.ledger is not None]
    if ledgers:
        return "its memory was read, but nothing says when: no step of it has a time"
    reasons = list(dict.fromkeys(step.null_reason for step in process.steps if step.null_reason))
    told = f" ({listed([printable(reason) for reason in reasons], 2)})" if reasons else ""
    return f"nothing that was recorded says what its memory was spent on{told}"


def _notes(run: Run, process: Process, found: Sequence[Moment]) -> Iterator[str]:
    """Say what a reader of the chart must know to read it right."""
    if not found:
        return
    last = found[-1]
    if is_cpu(process):
        yield "this run is on a CPU: its memory is the host's, which nothing splits into categories"
        yield "what is in use there is so by whomever, not by this rank alone"
    elif last.total_bytes is None:
        whose = "the log names no total of the card" if run.source == "log" else "no total of the card was read"
        yield f"{whose}: there is no ceiling, and what is drawn is what is known, not all there is"
        if not_told_apart(found):
            yield f"{NOT_TOLD}: what is missing from the most that was named at any reading"
    if last.step.ledger_precision_bytes:
        yield f"read from a log: figures are good to {gib(max(last.step.ledger_precision_bytes.values()))} GiB"
    if any(getattr(last.ledger, key) for key in OF_TORCH) and last.total_bytes is not None:
        yield DEVICE_LOST
    yield from _unknown(last.step)
    least = min((moment.ledger.unexplained or 0 for moment in found), default=0)
    if least < 0:
        yield (
            f"unexplained is negative (down to {gib(least)} GiB): the rows that are known sum to more than the total,"
            " so the stack rises above the ceiling by as much"
        )


def _unknown(step: Step) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for key, reason in step.ledger_reasons.items():
        if key != UNEXPLAINED and reason != "host_memory":
            by_reason.setdefault(reason, []).append(NAMES.get(key, key))
    into = "" if step.ledger_total_bytes is None else ", so it is in unexplained"
    for reason, names in by_reason.items():
        yield f"unknown{into}: {'; '.join(names)} ({REASONS.get(reason, printable(reason))})"

