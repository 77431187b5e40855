"""The account of one process's device: every change between two readings goes to a row, or makes one unknown."""

from __future__ import annotations

from typing import Final

from sglang_probe.collect.records import Reading
from sglang_probe.timeline.ledger_moments import Moment
from sglang_probe.timeline.ledger_others import NO_BASE, Others, has_context, more_used, used
from sglang_probe.timeline.ledger_rows import CONTEXT, KEYS, OTHER, Takes

NOT_READ: Final = "not_read"
NOT_APART: Final = "not_apart"
"""More than one row may have taken it: a reading between them is missing."""


class Account:
    """What each row has taken so far. Rows of this process only; the snapshot adds the others.

    Worked example: inside `weights.load` torch's allocated bytes grow by 4336, its reserved by 4352 and what the device
    has used by 4360 MiB: weights took 4336, other_process 8, and 16 are torch's to keep (`torch_cached`).
    """

    def __init__(self, others: Others) -> None:
        self.amounts = [0] * len(KEYS)
        self.unknown: dict[int, str] = {}
        """Row -> why nobody can say any more what it took."""
        self.pending_torch: set[int] = {OTHER}
        self.pending_rest: set[int] = {OTHER}
        """Rows that may have taken something since the last reading that would show it."""
        self._others = others
        self._allocated = 0
        self._reserved = 0
        self._used: tuple[int | None, int | None] = (None, None)
        self.has_context = False
        self._context_booked = False

    def move(self, place: int, moment: Moment) -> None:
        """Take the change since the moment before."""
        reading, takes = moment.reading, moment.takes
        if reading is None:
            self.pending_torch.add(takes.torch)
            self.pending_rest.add(takes.rest)
        elif self.has_context or has_context(reading):
            self.has_context = True
            self._torch(reading.torch_allocated_bytes, takes)
            self._rest(reading, place, moment)
        else:  # what moved before this process had a context was not its own
            self._used = used(reading)
            self.pending_torch, self.pending_rest = set(), set()

    def unsettled(self) -> dict[int, str]:
        """Return the rows that nobody can say, as of the last reading, and why."""
        if not (self.pending_torch or self.pending_rest):
            return dict(self.unknown)
        return dict.fromkeys(self.pending_torch | self.pending_rest, NOT_READ) | self.unknown

    def _torch(self, allocated: int | None, takes: Takes) -> None:
        if allocated is None:
            self.pending_torch.add(takes.torch)
            return
        change, self._allocated = allocated - self._allocated, allocated
        if not self.pending_torch:
            self.amounts[takes.torch] += change
            return
        self._book(change, self.pending_torch | {takes.torch}, None)
        self.pending_torch = set()

    def _rest(self, reading: Reading, place: int, moment: Moment) -> None:
        now, reserved = used(reading), reading.torch_reserved_bytes
        if reserved is None or now == (None, None):
            self.pending_rest.add(moment.takes.rest)
            return
        change = more_used(self._used, now)
        own = None if change is None else change - (reserved - self._reserved)
        self._used, self._reserved = now, reserved
        if own == 0 and self._context_booked and not self.pending_rest:
            return
        rows, self.pending_rest = self.pending_rest, set()
        flag = self._others.flag(place)
        if not self._context_booked:
            self._context_booked = True
            self._context(own, reserved, rows, moment, flag)
            return
        rows.add(moment.takes.rest)
        if own is None:  # nothing to compare: the source of what is used is another one than before
            self._lose(rows, NOT_APART if len(rows) > 1 else NOT_READ)
        else:
            self._book(own, rows, flag)

    def _context(self, own: int | None, reserved: int, rows: set[int], moment: Moment, flag: str | None) -> None:
        """Book what was taken until the first reading that has a context, which is the context and nothing else where
        no role has worked before it."""
        rows.discard(OTHER)
        if rows or (moment.worked and moment.takes.rest != OTHER):
            self._lose(rows | {CONTEXT, moment.takes.rest}, NOT_APART)
        elif own is None and self._others.context is not None:
            self._book(self._others.context - reserved, {CONTEXT}, flag)
        elif own is None:
            self._lose({CONTEXT}, flag or NO_BASE)
        else:
            self._book(own, {CONTEXT}, flag)

    def _book(self, change: int, rows: set[int], flag: str | None) -> None:
        if change == 0:
            return
        if flag is None and len(rows) == 1:
            (row,) = rows
            self.amounts[row] += change
        else:
            self._lose(rows, flag or NOT_APART)

    def _lose(self, rows: set[int], why: str) -> None:
        for row in rows:
            self.unknown.setdefault(row, why)
