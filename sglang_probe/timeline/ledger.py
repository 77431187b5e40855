"""Steps with their ledgers: at the end of each, what the device's memory is spent on, summing to the total to the byte.

How each row is derived, and how sure it is: docs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sglang_probe.collect.records import Reading
from sglang_probe.timeline.ledger_account import NOT_READ, Account
from sglang_probe.timeline.ledger_model import AsOf, TotalSource
from sglang_probe.timeline.ledger_moments import Moment, moments_of
from sglang_probe.timeline.ledger_others import Others, Own, others_of
from sglang_probe.timeline.ledger_rows import (
    CACHED,
    DRIVER,
    FOREIGN,
    FREE,
    KEYS,
    RUN,
    UNEXPLAINED,
)
from sglang_probe.timeline.model import Ledger, Neighbour, Sample, Step
from sglang_probe.timeline.spans import Draft

HOST_MEMORY = "host_memory"
"""On a CPU the device is the host, whose memory no process's reading can split."""
NO_NVML_TOTAL = "nvml_total_unread"
TOTALS_DISAGREE = "totals_disagree"


class Closed(NamedTuple):
    """A ledger, and what it sums to."""

    ledger: Ledger
    total: int
    source: TotalSource
    reasons: dict[str, str]


class _Totals(NamedTuple):
    """What never changes on a device, and is therefore known of every moment once it was read."""

    total: int
    source: TotalSource
    driver: int | None
    why_no_driver: str = ""


class Told(NamedTuple):
    """The steps of a process with their ledgers, and who else was on its device."""

    steps: list[Step]
    neighbours: tuple[Neighbour, ...]


def with_ledgers(drafts: Sequence[Draft], samples: Sequence[Sample], own: Own, device_kind: str | None) -> Told:
    """Return the steps of a process, each with the ledger of its end or of the last reading before it.

    Without any total (nothing was read, or this kind of device has none) there is no ledger.
    """
    moments, running = moments_of(drafts, samples)
    others = others_of(moments, own)
    steps = [draft.step for draft in drafts]
    totals = _totals([moment.reading for moment in moments if moment.reading is not None])
    if totals is not None:
        _fill_in(steps, _Book(others, totals, on_host=device_kind == "cpu"), moments, running)
    return Told(steps, others.neighbours)


def _fill_in(steps: list[Step], book: _Book, moments: Sequence[Moment], running: Sequence[int]) -> None:
    for place, moment in enumerate(moments):
        for position in moment.lost:
            steps[position] = _with(steps[position], book.closed(), "last_known")
        book.turn(place, moment)
        if moment.closed is not None:
            as_of: AsOf = "after" if book.latest is moment.reading else "last_known"
            steps[moment.closed] = _with(steps[moment.closed], book.closed(), as_of)
    for position in running:
        steps[position] = _with(steps[position], book.closed(), "last_known")


def _with(step: Step, closed: Closed | None, as_of: AsOf) -> Step:
    if closed is None:
        return step
    return msgspec.structs.replace(
        step,
        ledger=closed.ledger,
        ledger_total_bytes=closed.total,
        ledger_total_source=closed.source,
        ledger_as_of=as_of,
        ledger_reasons=closed.reasons,
    )


def _totals(readings: Sequence[Reading]) -> _Totals | None:
    device = next((one.device_total_bytes for one in readings if one.device_total_bytes is not None), None)
    for one in readings:
        if one.nvml_total_bytes is not None:
            driver = one.nvml_reserved_bytes if device is None else one.nvml_total_bytes - device
            why = NOT_READ if driver is None else TOTALS_DISAGREE
            driver = None if driver is None or driver < 0 else driver
            return _Totals(one.nvml_total_bytes, "nvml_total_bytes", driver, why)
    return None if device is None else _Totals(device, "device_total_bytes", None, NO_NVML_TOTAL)


class _Book:
    """The account of a process while its moments pass, and the ledger at the one it stands at."""

    def __init__(self, others: Others, totals: _Totals, *, on_host: bool) -> None:
        self._totals = totals
        self._others = others
        self._account = Account(others)
        self._on_host = on_host
        self._place = 0
        self._closed: Closed | None = None
        self._unknown_rows: dict[int, str] = {}
        self._reasons: dict[str, str] = {}
        self.latest: Reading | None = None
        """The last reading that told anything of the device."""

    def turn(self, place: int, moment: Moment) -> None:
        """Go on to the next moment."""
        reading = moment.reading
        told = reading is not None and (_free(reading) is not None or reading.torch_allocated_bytes is not None)
        if not told:
            self._closed = self.closed()  # before it is unsettled by what ran since
        self._account.move(place, moment)
        if told:
            self.latest, self._place, self._closed = reading, place, None

    def closed(self) -> Closed | None:
        """Return the ledger of the latest reading; None before the first."""
        if self._closed is None and self.latest is not None:
            self._closed = self._close(self.latest)
        return self._closed

    def _close(self, reading: Reading) -> Closed:
        if self._on_host:
            values: list[int | None] = [None] * len(KEYS)
            unknown = dict.fromkeys(range(UNEXPLAINED), HOST_MEMORY)
            del unknown[FREE]
        else:
            values = list(self._account.amounts)
            unknown = self._unknown(values, reading)
        values[FREE] = _free(reading)
        if values[FREE] is None:
            unknown[FREE] = NOT_READ
        for row in unknown:
            values[row] = None
        values[UNEXPLAINED] = 0
        values[UNEXPLAINED] = self._totals.total - sum(filter(None, values))
        return Closed(Ledger(*values), self._totals.total, self._totals.source, self._said(unknown))

    def _unknown(self, values: list[int | None], reading: Reading) -> dict[int, str]:
        """Fill in the rows that are not booked, and return those that are unknown, with their reasons."""
        unknown = self._account.unsettled()
        values[DRIVER] = self._totals.driver
        if self._totals.driver is None:
            unknown[DRIVER] = self._totals.why_no_driver
        allocated, reserved = reading.torch_allocated_bytes, reading.torch_reserved_bytes
        if allocated is not None and reserved is not None:
            values[CACHED] = reserved - allocated
        elif self._account.has_context:
            unknown[CACHED] = NOT_READ
        shares = self._others.shares(self._place)
        values[RUN], values[FOREIGN] = shares.run, shares.foreign
        if shares.why is not None:
            unknown[RUN] = unknown[FOREIGN] = shares.why
        return unknown

    def _said(self, unknown: dict[int, str]) -> dict[str, str]:
        """Return the reasons by name; the same object as long as they are the same."""
        if unknown != self._unknown_rows:
            self._unknown_rows = unknown
            self._reasons = {KEYS[row]: unknown[row] for row in sorted(unknown)}
        return self._reasons


def _free(reading: Reading) -> int | None:
    return reading.nvml_free_bytes if reading.device_free_bytes is None else reading.device_free_bytes
