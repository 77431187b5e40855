"""By how much the server's own clock, which names no zone, is ahead of UTC: the one offset that fits every rank.

Worked example: `Init torch distributed ends` is stamped 20:51:11 and the event's step ended at 19:51:11.19 UTC: the
clock is 3600 s ahead, a multiple of 15 minutes, and every other moment must fit the same offset.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sglang_probe.collect.logs.model import Entry, Fact, LogRun
from sglang_probe.timeline.model import Process, Step

TOLERANCE_S: Final = 2.0
QUARTER_S: Final = 900
"""Zones differ from UTC by multiples of it."""
FARTHEST_S: Final = 14 * 3600
DAY_S: Final = 86400
_ENDS: Final = {"dist_init_end": "dist.init"}
"""Printed when a step ends."""
_INSIDE: Final = {"weights_begin": "weights.load", "weights_end": "weights.load", "pool_end": "kv.pool"}
"""Printed while a step runs: ranks wait for each other after `Load weight end`, inside it."""
_STAMP: Final = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")


class Moment(NamedTuple):
    """When a line was printed, by the log, and between which two moments by the events; in seconds."""

    label: str
    stamp: float
    earliest: float
    latest: float
    dated: bool
    """False: the stamp is a time of day."""
    zoned: bool
    """The carrier named the zone: there is nothing to find."""
    place: str


class Offset(NamedTuple):
    """The answer: how far ahead of UTC, and whether a moment contradicts every offset."""

    seconds: float | None
    moments: int
    dated: bool
    why_not: str | None = None


def moments_of(log: LogRun, ranks: Mapping[str, Process]) -> list[Moment]:
    """Return the moments that both have."""
    found: list[Moment] = []
    seen: dict[tuple[str, str], int] = {}
    for fact in log.facts:
        phase = _ENDS.get(fact.kind) or _INSIDE.get(fact.kind)
        label = fact.label or next(iter(ranks), "")
        if phase is None or label not in ranks or (fact.label is None and len(ranks) > 1):
            continue
        place = seen.get((label, fact.kind), 0)
        seen[label, fact.kind] = place + 1
        steps = _outermost(ranks[label], phase)
        if place < len(steps):
            found += _moment(fact, label, steps[place])
    return found


def _outermost(process: Process, phase: str) -> Sequence[Step]:
    steps = [step for step in process.steps if step.phase == phase]
    inside = {step.id for step in steps}
    return [step for step in steps if step.parent not in inside]


def _moment(fact: Fact, label: str, step: Step) -> Iterator[Moment]:
    began, said = seconds_of(step.ts), stamp_of(fact.entry)
    if began is None or said is None or step.duration_s is None:
        return
    ended = began + step.duration_s
    begins = ended if fact.kind in _ENDS else began
    place = f"{fact.entry.file.rsplit('/', 1)[-1]}:{fact.entry.line}"
    yield Moment(label, said.seconds, begins - TOLERANCE_S, ended + TOLERANCE_S, said.dated, said.zoned, place)


class _Stamp(NamedTuple):
    seconds: float
    dated: bool
    zoned: bool


def stamp_of(entry: Entry) -> _Stamp | None:
    """Return when a line was printed: the carrier's time where it has a zone, else the server's own, as if UTC."""
    carried = seconds_of(entry.ts)
    if carried is not None:
        return _Stamp(carried, dated=True, zoned=True)
    match = _STAMP.fullmatch(entry.stamp or "")
    if match is None:
        return None
    year, month, day, hour, minute, second, part = match.groups()
    try:
        date = dt.date(int(year or 1970), int(month or 1), int(day or 1))
    except ValueError:
        return None
    midnight = (date - dt.date(1970, 1, 1)).days * DAY_S
    # A stamp without decimals is cut off: on average half a second went by since.
    decimals = float(f"0.{part}") if part else 0.5
    at = midnight + int(hour) * 3600 + int(minute) * 60 + int(second) + decimals
    return _Stamp(float(at), dated=year is not None, zoned=False)


def seconds_of(ts: str | None) -> float | None:
    """Return an RFC 3339 time in UTC as seconds since 1970; None where it is none."""
    if ts is None or not ts.endswith("Z"):
        return None
    whole, _, part = ts[:-1].partition(".")
    try:
        at = dt.datetime.fromisoformat(whole).replace(tzinfo=dt.timezone.utc).timestamp()
        return at + (float(f"0.{part}") if part.isdigit() else 0.0)
    except (ValueError, OverflowError):
        return None


def offset_of(moments: Sequence[Moment]) -> Offset:
    """Return the one offset that puts every moment where the events have it; None and why where there is none."""
    if not moments:
        return Offset(None, 0, dated=False)
    dated = all(one.dated for one in moments)
    zoned = all(one.zoned for one in moments)
    candidates = [0.0] if zoned else [float(at) for at in range(-FARTHEST_S, FARTHEST_S + 1, QUARTER_S)]
    fitting = [at for at in candidates if all(_fits(one, at) for one in moments)]
    if fitting:
        return Offset(min(fitting, key=abs), len(moments), dated=dated)
    return Offset(None, len(moments), dated=dated, why_not=_why_not(moments, candidates))


def _fits(moment: Moment, offset: float) -> bool:
    at = moment.stamp - (0.0 if moment.zoned else offset)
    if moment.dated:
        return moment.earliest <= at <= moment.latest
    return (at - moment.earliest) % DAY_S <= moment.latest - moment.earliest


def _why_not(moments: Sequence[Moment], candidates: Sequence[float]) -> str:
    """Say which moment lies how far off, under the offset that fits most of them."""
    best = max(candidates, key=lambda at: (sum(_fits(one, at) for one in moments), -_far(moments, at)))
    off = next(one for one in moments if not _fits(one, best))
    by_utc = abs(_apart(off, 0)) > FARTHEST_S + DAY_S / 24  # no zone is that far from UTC
    apart = _apart(off, 0 if by_utc else best)
    zone = "" if by_utc or not best else f", with a clock {best / 3600:+g} h from UTC"
    return f"{off.label} at {off.place} is {_long(abs(apart))} {'after' if apart > 0 else 'before'} its event{zone}"


def _apart(moment: Moment, offset: float) -> float:
    """Return how long after its event a line was stamped; of a time of day the shortest way."""
    apart = moment.stamp - offset - (moment.earliest + moment.latest) / 2
    return apart if moment.dated else (apart + DAY_S / 2) % DAY_S - DAY_S / 2


def _far(moments: Sequence[Moment], offset: float) -> float:
    return sum(abs(_apart(one, offset)) for one in moments)


def _long(seconds: float) -> str:
    """Return a time as a person says it: 26.0 h, 12 s."""
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
