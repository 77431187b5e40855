"""Who else is on the device, by NVML's process lists, and whether they moved between two of them.

A change of what the device holds is this process's own only while nobody else's memory moves. That is known between two
lists that name the same others with the same bytes, where this process's own bytes account for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sglang_probe.collect.records import NvmlProcess, Reading
from sglang_probe.timeline.ledger_model import Neighbour
from sglang_probe.timeline.ledger_moments import Moment

TOLERANCE: Final = 64 << 20
"""Bytes by which NVML's figure for a process and what the device lost may grow apart: 6.4 MiB on the recorded H200."""
INITIAL_NAMESPACE: Final = "pid:[4026531836]"
"""The pid namespace that Linux boots with (PROC_PID_INIT_INO): NVML's pids are this one's."""

INIT: Final = 1
"""The process that inherits those whose parent has ended."""
TICKS: Final = 100
"""Clock ticks a second, in which Linux gives start times (USER_HZ)."""

PID_NAMESPACE: Final = "pid_namespace"
NO_LIST: Final = "no_process_list"
UNREAD_BYTES: Final = "process_bytes_unread"
MOVED: Final = "others_moved"
NO_BASE: Final = "no_reading_before_context"


class Own(NamedTuple):
    """Whose ledger it is, and the other processes of its run in the same boot and pid namespace."""

    pid: int
    start_ticks: int | None
    namespace: str | None
    mates: Mapping[int, int | None]
    """pid -> start."""


class Listing(NamedTuple):
    """One process list, classified; None where it cannot be."""

    own: int | None
    run: int | None
    foreign: int | None
    why: str | None = None


class Others(NamedTuple):
    """What a process's lists tell about each of its moments."""

    places: list[int]
    """Moments with a list, ascending."""
    listings: list[Listing]
    flags: list[str | None]
    """For each stretch that ends with a list, and for what follows the last: why it cannot be told apart, or None."""
    neighbours: tuple[Neighbour, ...] = ()
    context: int | None = None
    """Own bytes at the first reading where there is none from before the context; from a list without others."""

    def flag(self, moment: int) -> str | None:
        """Return why what changed up to this moment may be others'; None where it is this process's own."""
        return self.flags[bisect_left(self.places, moment)]

    def shares(self, moment: int) -> Listing:
        """Return what the run's other processes and foreign ones hold at a moment."""
        stretch = bisect_left(self.places, moment)
        listed = stretch < len(self.places) and self.places[stretch] == moment
        why = None if listed else self.flags[stretch]
        if why is not None or not self.listings:
            return Listing(None, None, None, why or NO_LIST)
        return self.listings[min(stretch, len(self.listings) - 1)]


_UNLISTED: Final = Others([], [], [NO_LIST])


def used(reading: Reading) -> tuple[int | None, int | None]:
    """Return what the device says is used, by CUDA and by NVML."""
    total, free = reading.device_total_bytes, reading.device_free_bytes
    return None if total is None or free is None else total - free, reading.nvml_used_bytes


def has_context(reading: Reading) -> bool:
    """Tell whether the process had a context: torch is asked only then."""
    return reading.device_free_bytes is not None or reading.torch_reserved_bytes is not None


def others_of(moments: Sequence[Moment], own: Own) -> Others:
    """Return what the lists among a process's readings tell."""
    listed = [
        (place, moment.reading, moment.reading.nvml_processes)
        for place, moment in enumerate(moments)
        if moment.reading is not None and moment.reading.nvml_processes is not None
    ]
    if not listed:
        return _UNLISTED
    everyone = (one for _, _, found in listed for one in found)
    sees_itself = own.namespace == INITIAL_NAMESPACE or any(_is_own(one, own) for one in everyone)
    first_context = next(
        (place for place, moment in enumerate(moments) if moment.reading is not None and has_context(moment.reading)),
        len(moments),
    )
    listings = [_classified(found, own, place < first_context and sees_itself) for place, _, found in listed]
    places = [place for place, _, _ in listed]
    readings = [reading for _, reading, _ in listed]
    head, context = _head(moments[: places[0]], first_context, readings[0], listings[0])
    lists = list(zip(readings, listings, strict=True))
    stretches = [_stretch(*first, *last) for first, last in pairwise(lists)]
    told = [found for (_, _, found), listing in zip(listed, listings, strict=True) if listing.why != PID_NAMESPACE]
    return Others(places, listings, [head, *stretches, listings[-1].why], _neighbours(told, own), context)


def _is_own(one: NvmlProcess, own: Own) -> bool:
    return one.pid == own.pid and _same_start(one.start_ticks, own.start_ticks)


def _same_start(one: int | None, other: int | None) -> bool:
    return one is None or other is None or one == other


def _classified(found: Sequence[NvmlProcess], own: Own, absent: bool) -> Listing:
    """Split a list; `absent` says that this process had no context yet, and need not be in it."""
    mine: list[int | None] = []
    run = foreign = 0
    unread = False
    for one in found:
        if _is_own(one, own):
            mine.append(one.bytes)
        elif one.bytes is None:
            unread = True
        elif _is_mate(one, own):
            run += one.bytes
        else:
            foreign += one.bytes
    if not mine and not absent:
        return Listing(None, None, None, PID_NAMESPACE)
    if unread:
        return Listing(None, None, None, UNREAD_BYTES)
    return Listing(None if None in mine else sum(filter(None, mine)), run, foreign)


def _is_mate(one: NvmlProcess, own: Own) -> bool:
    return one.pid in own.mates and _same_start(one.start_ticks, own.mates[one.pid])


def _neighbours(lists: Sequence[Sequence[NvmlProcess]], own: Own) -> tuple[Neighbour, ...]:
    """Return every other process that a list names, in the order in which they were seen."""
    seen: dict[tuple[int, int | None], list[NvmlProcess]] = {}
    for found in lists:
        for one in found:
            if not _is_own(one, own):
                seen.setdefault((one.pid, one.start_ticks), []).append(one)
    still = {(one.pid, one.start_ticks) for one in lists[-1]} if lists else set()
    return tuple(
        Neighbour(
            pid=pid,
            start_ticks=start,
            name=next((one.name for one in reversed(found) if one.name is not None), None),
            kind="run" if _is_mate(found[-1], own) else "foreign",
            bytes=found[-1].bytes,
            peak_bytes=max((one.bytes for one in found if one.bytes is not None), default=None),
            gone=(pid, start) not in still,
            user=next((one.user for one in reversed(found) if one.user is not None), None),
            began_before_s=_older(own.start_ticks, start),
            left_over=any(one.parent == INIT and (one.name or "").startswith("sglang::") for one in found),
        )
        for (pid, start), found in seen.items()
    )


def _older(own: int | None, other: int | None) -> float | None:
    return None if own is None or other is None else (own - other) / TICKS


def _stretch(before: Reading, first: Listing, after: Reading, last: Listing) -> str | None:
    """Return why what changed between two lists cannot be told apart, or None."""
    if first.why or last.why:
        return first.why or last.why
    if (first.run, first.foreign) != (last.run, last.foreign):
        return MOVED
    grown = more_used(used(before), used(after))
    if grown is None or first.own is None or last.own is None:
        return None  # the others hold what they held, which is all that can be known
    return MOVED if abs(grown - (last.own - first.own)) > TOLERANCE else None


def more_used(before: tuple[int | None, int | None], after: tuple[int | None, int | None]) -> int | None:
    """Return how much more is `used`, by a source that spoke both times: CUDA rather than NVML."""
    for first, last in zip(before, after, strict=True):
        if first is not None and last is not None:
            return last - first
    return None


def _head(
    before: Sequence[Moment], first_context: int, reading: Reading, first: Listing
) -> tuple[str | None, int | None]:
    """Judge what came before the first list; with it, own bytes at the first reading where none is older."""
    if first.why is not None or first_context > len(before):
        return first.why, None
    older = [moment.reading for moment in before[:first_context] if moment.reading is not None]
    base = next((one for one in reversed(older) if used(one) != (None, None)), None)
    if base is None:
        oldest = before[first_context].reading if first_context < len(before) else reading
        return _without_base(oldest or reading, reading, first)
    grown = more_used(used(base), used(reading))
    if grown is None or first.own is None:
        return UNREAD_BYTES, None
    return MOVED if abs(grown - first.own) > TOLERANCE else None, None


def _without_base(oldest: Reading, reading: Reading, first: Listing) -> tuple[str | None, int | None]:
    """Judge by a list that names this process alone, which held at the oldest reading what it has not taken since."""
    grown = more_used(used(oldest), used(reading))
    if grown is None or first.own is None or first.own < grown or first.run or first.foreign:
        return NO_BASE, None
    return None, first.own - grown
