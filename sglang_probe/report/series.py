"""A rank's memory over time: what each category held at the end of each step, on one clock for the whole run.

Pure: what charts, traces and tables draw is computed here once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple

from sglang_probe.figures import GIB
from sglang_probe.timeline.ledger_model import Ledger
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Process, Run, Step

NS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
FREE: Final = "free"
UNEXPLAINED: Final = "unexplained"
IN_USE: Final = "in_use"
"""No category of the ledger: what cannot be told apart, in a log or on a CPU."""
NOT_TOLD: Final = "not told apart"
ON_THE_HOST: Final = "in use on the host"
LOG_SUM: Final = GIB // 50
"""Bytes by which a sum of a log's figures may be off, so that it is printed with two decimals."""


class Moment(NamedTuple):
    """What a device's memory was spent on when a step ended."""

    at_s: float
    """Seconds since the run began."""
    step: Step
    total_bytes: int | None
    ledger: Ledger


class RunClock:
    """Places every step of a run on one scale: seconds since the run began, by the clock of the host it is told by.

    A host's clock that is ahead of another's by `Run.skew` is set back by as much.
    """

    def __init__(self, run: Run) -> None:
        self._ahead = {skew.host: round(skew.seconds * NS) for skew in run.skew}
        self._local = run.started is None
        stamps = [found for process in run.processes for step in process.steps if (found := self._ns(process, step))]
        own = nanoseconds(run.local_started if self._local else run.started)
        # The launcher's first event begins the run, but no host may have begun before it once clocks are set.
        self.zero_ns = min([*stamps, *([] if own is None else [own])], default=None)

    def begin_s(self, process: Process, step: Step) -> float | None:
        """Return when a step began; None where nothing says so."""
        found = self._ns(process, step)
        return None if found is None or self.zero_ns is None else (found - self.zero_ns) / NS

    def at_s(self, process: Process, stamp: str | None) -> float | None:
        """Return when a process wrote something; None where the stamp does not say."""
        found = nanoseconds(stamp)
        ahead = self._ahead.get(process.host or "", 0)
        return None if found is None or self.zero_ns is None else (found - ahead - self.zero_ns) / NS

    def end_s(self, process: Process, step: Step) -> float | None:
        """Return when a step ended, by how long it took; None where it did not end, or nothing says so."""
        begin = self.begin_s(process, step)
        return None if begin is None or step.duration_s is None else begin + step.duration_s

    def _ns(self, process: Process, step: Step) -> int | None:
        found = nanoseconds(step.local_time if self._local else step.ts)
        return None if found is None else found - self._ahead.get(process.host or "", 0)


def moments(process: Process, clock: RunClock) -> tuple[Moment, ...]:
    """Return the ledgers of a rank in the order in which they were read; steps of unknown time are left out."""
    # Of steps that end at one time the inner one ended first.
    return tuple(sorted(_moments(process, clock), key=lambda moment: (moment.at_s, -moment.step.depth)))


def _moments(process: Process, clock: RunClock) -> Iterator[Moment]:
    for position, step in enumerate(process.steps):
        if step.ledger is not None:
            at = _read_at(process, position, clock)
            if at is not None:
                yield Moment(at, step, step.ledger_total_bytes, step.ledger)


def _read_at(process: Process, position: int, clock: RunClock) -> float | None:
    """Return when a step's ledger was read: at its end; where that is not known, at the last time known inside it."""
    end = clock.end_s(process, process.steps[position])
    return max(times_of(process, position, clock), default=None) if end is None else end


def times_of(process: Process, position: int, clock: RunClock) -> Iterator[float]:
    """Yield when a step and those inside it began and ended, as far as is known."""
    step = process.steps[position]
    inside = takewhile(lambda later: later.depth > step.depth, process.steps[position + 1 :])
    for one in (step, *inside):
        yield from (time for time in (clock.begin_s(process, one), clock.end_s(process, one)) if time is not None)


def not_told_apart(found: Sequence[Moment]) -> tuple[int, ...]:
    """Return the bytes at each moment that a source without a total does not tell apart: what is missing from the most
    that it ever named. Nothing where there is a total, or nothing is ever missing.

    Worked example, of a log in GiB: weights 16.99 and free 59.64 are 76.63; after the KV pool it names 16.99 and 12.45,
    and 47.19 are missing.
    """
    if not found or found[-1].total_bytes is not None:
        return ()
    named = [sum(getattr(moment.ledger, key) or 0 for key in KEYS) for moment in found]
    missing = tuple(max(named) - one for one in named)
    return missing if any(missing) else ()


def categories(run: Run) -> tuple[str, ...]:
    """Return the categories that any rank of a run ever held anything of, in the ledger's order."""
    held = {
        key
        for process in run.processes
        for step in process.steps
        if step.ledger is not None
        for key in KEYS
        if getattr(step.ledger, key)
    }
    return tuple(key for key in KEYS if key in held)


def nanoseconds(stamp: str | None) -> int | None:
    """Return an RFC 3339 time in UTC (nanoseconds kept), or a log's time without a zone, as nanoseconds since 1970;
    None where it is neither."""
    if stamp is None:
        return None
    whole, _, part = stamp.removesuffix("Z").partition(".")
    second = _second(whole)
    if second is None:
        return None
    digits = part[:9] if part.isascii() and part.isdecimal() else ""
    return second * NS + int(digits.ljust(9, "0") or "0")


@lru_cache(maxsize=4096)  # a start of 10,000 ranks has a million stamps in a hundred seconds
def _second(whole: str) -> int | None:
    try:
        second = datetime.fromisoformat(whole.replace(" ", "T"))
    except ValueError:
        return None
    second = second.replace(tzinfo=timezone.utc) if second.tzinfo is None else second
    return int((second - _EPOCH).total_seconds())
