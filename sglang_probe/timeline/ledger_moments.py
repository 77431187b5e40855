"""A process's steps and samples as its moments: every reading in its order, and what ran since the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from sglang_probe.collect.records import Reading
from sglang_probe.timeline.ledger_rows import NOBODY, Takes, takes_of
from sglang_probe.timeline.model import Sample
from sglang_probe.timeline.spans import Draft

_BEGIN: Final = 0
_CLOSE: Final = 1
_SAMPLE: Final = 2


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One place in a process's life where memory was read, or was to be read."""

    reading: Reading | None
    takes: Takes
    """The rows of what ran since the moment before."""
    worked: bool
    """A span's own work lies before it: an end or a sample, not a begin."""
    closed: int | None = None
    """Position of the step that ends here."""
    lost: tuple[int, ...] = ()
    """Positions of steps that ended between the moment before and this one, their end lines lost."""


class Moments(NamedTuple):
    """All of them, and the positions of the steps that were running at the last."""

    all: list[Moment]
    running: tuple[int, ...]


def moments_of(drafts: Sequence[Draft], samples: Sequence[Sample]) -> Moments:
    """Return the moments of a process, in the order of `seq`."""
    found: list[Moment] = []
    running: list[int] = []
    open_rows: list[Takes] = [NOBODY]
    steps = [draft.step for draft in drafts]
    rows = [takes_of(step.phase, step.worker, step.attributes) for step in steps]
    for _, _, _, kind, position in sorted(_events(drafts, samples)):
        innermost = open_rows[-1]
        if kind == _BEGIN:
            found.append(Moment(steps[position].before, innermost, False))
            running.append(position)
            open_rows.append(rows[position])
        elif kind == _CLOSE:
            place = _place(running, position)
            lost = tuple(running[place + 1 :])
            found.append(Moment(steps[position].after, innermost, True, position, lost))
            del running[place:], open_rows[place + 1 :]
        else:
            sample = samples[position]
            found.append(Moment(sample.after, _built(sample) or innermost, True))
    return Moments(found, tuple(running))


def _place(running: Sequence[int], position: int) -> int:
    """Return where a step stands among those that run; behind them where one around it has ended before it (damage)."""
    if running and running[-1] == position:
        return len(running) - 1
    return running.index(position) if position in running else len(running)


def _events(drafts: Sequence[Draft], samples: Sequence[Sample]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (seq, rank among equals, depth, kind, position)."""
    begins = _lost_begins(drafts, samples) if any(draft.began_seq is None for draft in drafts) else {}
    for position, draft in enumerate(drafts):
        began = begins[position] if draft.began_seq is None else draft.began_seq
        depth = draft.step.depth
        yield began, 0, depth, _BEGIN, position
        if draft.closed_seq is not None:
            # A line that comes before its own begin is damage; whatever it was, it did not end before it began.
            yield max(draft.closed_seq, began), 1, -depth, _CLOSE, position
    for position, sample in enumerate(samples):
        if sample.seq is not None:
            yield sample.seq, 1, 0, _SAMPLE, position


def _lost_begins(drafts: Sequence[Draft], samples: Sequence[Sample]) -> dict[int, int]:
    """Return for the steps without a begin line the `seq` of the first event inside them, or else of their end."""
    places = {draft.step.id: position for position, draft in enumerate(drafts)}
    first = {
        position: draft.closed_seq or 0 if draft.began_seq is None else draft.began_seq
        for position, draft in enumerate(drafts)
    }
    for sample in samples:
        if sample.seq is not None:
            _earlier(first, drafts, places.get(sample.parent or ""), sample.seq)
    for position in sorted(first, key=lambda one: -drafts[one].step.depth):  # the innermost first
        _earlier(first, drafts, places.get(drafts[position].step.parent or ""), first[position])
    return first


def _earlier(first: dict[int, int], drafts: Sequence[Draft], outer: int | None, seq: int) -> None:
    if outer is not None and drafts[outer].began_seq is None:
        first[outer] = min(first[outer], seq)


def _built(sample: Sample) -> Takes | None:
    """Return the rows of what a sample says was just built; None where it was nothing."""
    said = sample.attributes
    if said.get("disabled") is True or not (said.get("bytes") or said.get("asked_bytes")):
        return None
    return takes_of(sample.phase, sample.worker, said)
