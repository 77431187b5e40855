"""A start while it goes on: where each rank is, for how long against its peers, what is free, who is late.

Pure: the same run at the same time gives the same view. `watch_text` writes it for a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Final, NamedTuple

from sglang_probe.report.fold import TOLERANCE
from sglang_probe.report.series import NS, RunClock, nanoseconds
from sglang_probe.report.watch_model import Row, View
from sglang_probe.report.watch_notes import notes_of
from sglang_probe.report.watch_places import Place, Track, process_names, track_of
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import is_cpu, ranks_of

LATE_S: Final = 2.0
"""A rank that is later than this, and than a quarter of the time that its peers took, stands out."""


class Survey(NamedTuple):
    """What of a run does not depend on the time: it is made once for each reading."""

    run: Run
    clock: RunClock
    tracks: dict[str, Track]
    """Of each rank, by its name: its label, with its pid where two ranks have the same."""
    cpu: frozenset[str]
    """Ranks whose memory is the host's."""


class _Seat(NamedTuple):
    """A rank with its track."""

    label: str
    track: Track
    free: int | None
    is_cpu: bool


def survey_of(run: Run) -> Survey:
    """Return the ways of all ranks."""
    clock = RunClock(run)
    ranks = {name: process for process, name in process_names(run) if process.label is not None}
    tracks = {label: track_of(process, clock) for label, process in ranks.items()}
    return Survey(run, clock, tracks, frozenset(label for label, process in ranks.items() if is_cpu(process)))


def view_of(survey: Survey, now: datetime, free_now: Mapping[str, int] | None = None) -> View:
    """Return where a run stands. `now` is UTC with its zone; of a log, what its own clock shows.

    `free_now`: name (see `process_names`) -> bytes free on its device this moment, where the watcher can ask it.
    """
    run, read = survey.run, free_now or {}
    at = _at(now, survey.clock)
    seats = [
        _Seat(label, track, read.get(label, track.free_bytes), label in survey.cpu)
        for label, track in survey.tracks.items()
    ]
    rows = [row for place, there in _placed(seats).items() for row in _rows(place, there, seats, at, read)]
    rows.sort(key=_order)
    world = _world(run)
    return View(
        run_id=run.run_id,
        launch=run.launch,
        source=run.source,
        outcome=run.outcome,
        sglang_version=run.provenance.sglang_version,
        elapsed_s=at,
        silent_s=_silence(run, now),
        ranks=len(seats),
        world=world,
        ready=sum(seat.track.place.state == "ready" for seat in seats),
        others=tuple(process.role for process in run.processes if process.label is None),
        rows=tuple(rows),
        notes=tuple(notes_of(run, rows, world)),
    )


def _at(now: datetime, clock: RunClock) -> float | None:
    shown = nanoseconds(now.isoformat()[:26])
    return None if shown is None or clock.zero_ns is None else max((shown - clock.zero_ns) / NS, 0.0)


def _silence(run: Run, now: datetime) -> float | None:
    stamps = [nanoseconds(process.last_ts) for process in run.processes] if run.source != "log" else []
    known = [one for one in (*stamps, nanoseconds(run.ended or run.local_ended)) if one is not None]
    shown = nanoseconds(now.isoformat()[:26])
    return None if not known or shown is None else max((shown - max(known)) / NS, 0.0)


def _placed(seats: Iterable[_Seat]) -> dict[Place, list[_Seat]]:
    found: dict[Place, list[_Seat]] = {}
    for seat in seats:
        found.setdefault(seat.track.place, []).append(seat)
    return found


def _rows(
    place: Place, there: list[_Seat], seats: Sequence[_Seat], at: float | None, free_now: Mapping[str, int]
) -> Iterable[Row]:
    """Return a row for those who have what is usual free, and for those who have less and more."""
    middle = _median([seat.free for seat in there if not seat.is_cpu])
    kinds: dict[int, list[_Seat]] = {}
    for seat in there:
        kinds.setdefault(_oddness(seat, middle), []).append(seat)
    for alike in kinds.values():
        yield _row(place, alike, seats, at, free_now)


def _oddness(seat: _Seat, middle: float | None) -> int:
    if middle is None or seat.free is None or seat.is_cpu or abs(seat.free - middle) < TOLERANCE:
        return 0
    return 1 if seat.free > middle else -1


def _row(
    place: Place, alike: list[_Seat], seats: Sequence[_Seat], at: float | None, free_now: Mapping[str, int]
) -> Row:
    since = [at - seat.track.at_s for seat in alike if at is not None and seat.track.at_s is not None]
    gone_on = [passed for seat in seats if (passed := seat.track.passed(place)) is not None]
    took = _median([left - came for came, left in gone_on if came is not None and left is not None])
    went = _median([left for _, left in gone_on])
    free = [seat.free for seat in alike if seat.free is not None]
    taken = [
        seat.track.free_bytes - free_now[seat.label]
        for seat in alike
        if seat.label in free_now and seat.track.free_bytes is not None and not seat.is_cpu
    ]
    return Row(
        labels=tuple(seat.label for seat in alike),
        state=place.state,
        now=place.now,
        phase=place.phase,
        since_s=max(*since, 0.0) if since else None,
        least_since_s=max(min(since), 0.0) if since else None,
        past=len(gone_on),
        of=len(seats),
        took_s=took,
        late_s=_lateness(place, at, went, took, len(gone_on), len(seats)),
        free_bytes=min(free, default=None),
        most_free_bytes=max(free, default=None),
        taken_bytes=max(taken, default=None),
        precision_bytes=next((seat.track.precision_bytes for seat in alike), None),
    )


def _lateness(
    place: Place, at: float | None, went: float | None, took: float | None, past: int, of: int
) -> float | None:
    """Return how late those in a place are: only where at least half of all ranks went on, and it is worth a word."""
    if at is None or went is None or place.state not in {"before", "in", "after"} or past * 2 < of:
        return None
    late = at - went
    return late if late > max(LATE_S, (took or 0.0) / 4) else None


def _order(row: Row) -> tuple[bool, int]:
    """Put those behind first, then the others by how many are past them."""
    return row.late_s is None, -row.past


def _world(run: Run) -> int | None:
    sizes = [process.rank.world.size for process in ranks_of(run) if process.rank and process.rank.world]
    if sizes or run.missing:
        return len(ranks_of(run)) + len(run.missing)
    return len(ranks_of(run)) or None if run.source == "log" else None


def _median(values: Iterable[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
