"""The names of many ranks in few words: `TP0-TP36, TP38-TP199`, `PP0-PP3 TP0-TP7`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

MANY: Final = 8
"""Ranges named in one line."""
LEAST: Final = 3
"""Labels that make a range: two are named as they are."""
_LABEL: Final = re.compile(r"(?P<host>.*:)?(?P<parts>[A-Z_]*[0-9]{1,15}(?: [A-Z_]+[0-9]{1,15})*)", re.DOTALL)
_PART: Final = re.compile(r"([A-Z_]*)([0-9]+)")


class _Label(NamedTuple):
    text: str
    shape: tuple[str, ...]
    """Host and names of its parts."""
    places: tuple[int, ...]


class _Range(NamedTuple):
    labels: tuple[_Label, ...]
    moving: frozenset[int]
    """Positions of the places that rise by one from each label to the next."""


def named(labels: Sequence[object], most: int | None = MANY) -> str:
    """Return labels (or numbers) in their order, those that follow one another as ranges: at most `most` names and
    ranges, and how many labels more there are; None: all.

    Worked example: TP0, TP1, ... TP36, TP38, TP39 is `TP0-TP36, TP38, TP39`; of DP0 TP0, DP0 TP1, DP1 TP2, DP1 TP3 it
    is `DP0 TP0-DP1 TP3`, and of four pipeline stages of eight ranks each `PP0-PP3 TP0-TP7`.
    """
    found = list(_joined(list(_ranges([_parsed(str(label)) for label in labels]))))
    shown = found if most is None else found[:most]
    more = sum(count for _, count in found[len(shown) :])
    return ", ".join(text for text, _ in shown) + (f" and {more:,} more" if more else "")


def _parsed(text: str) -> _Label:
    found = _LABEL.fullmatch(text)
    if found is None:
        return _Label(text, (text,), ())
    parts = _PART.findall(found["parts"])
    return _Label(text, (found["host"] or "", *(name for name, _ in parts)), tuple(int(place) for _, place in parts))


def _ranges(labels: Sequence[_Label]) -> Iterator[_Range]:
    """Cut labels into runs in which one place at least always rises by one, and the others stay or rise by one."""
    run: list[_Label] = []
    moving: frozenset[int] = frozenset()
    for label in labels:
        risen = _risen(run[-1], label) if run else None
        still = risen if len(run) == 1 else None if risen is None else risen & moving
        if run and still:
            run.append(label)
            moving = still
            continue
        if run:
            yield _Range(tuple(run), moving)
        run, moving = [label], frozenset()
    if run:
        yield _Range(tuple(run), moving)


def _risen(before: _Label, after: _Label) -> frozenset[int] | None:
    """Return the places that rise by one; None where one does anything else than to stay, or the shapes differ."""
    if before.shape != after.shape:
        return None
    steps = [new - old for old, new in zip(before.places, after.places, strict=True)]
    return frozenset(place for place, step in enumerate(steps) if step) if set(steps) <= {0, 1} else None


def _joined(ranges: Sequence[_Range]) -> Iterator[tuple[str, int]]:
    """Yield what is printed, and of how many labels: ranges that are the same but for a place that rises are one."""
    position = 0
    while position < len(ranges):
        stop = position + 1
        outer = _outer(ranges[position], ranges[stop]) if stop < len(ranges) else None
        while outer is not None and stop < len(ranges) and _outer(ranges[stop - 1], ranges[stop]) == outer:
            stop += 1
        alike = ranges[position:stop]
        if len(alike) == 1:
            yield from _single(alike[0])
        else:
            yield _grid(alike), sum(len(one.labels) for one in alike)
        position = stop


def _outer(before: _Range, after: _Range) -> int | None:
    """Return the place in which a range is one higher than another, if they are the same but for it and move in one
    place behind it."""
    ends = [_risen(before.labels[end], after.labels[end]) for end in (0, -1)]
    if len(before.labels) != len(after.labels) or ends[0] is None or ends[0] != ends[1] or len(ends[0]) != 1:
        return None
    (outer,) = ends[0]
    inner = _changing(before)
    return outer if inner == _changing(after) and len(inner) == 1 and inner[0] > outer else None


def _changing(one: _Range) -> list[int]:
    first, last = one.labels[0].places, one.labels[-1].places
    return [place for place, (old, new) in enumerate(zip(first, last, strict=True)) if old != new]


def _grid(alike: Sequence[_Range]) -> str:
    first, last = alike[0].labels[0], alike[-1].labels[-1]
    parts = zip(first.shape[1:], first.places, last.places, strict=True)
    words = (f"{name}{low}" if low == high else f"{name}{low}-{name}{high}" for name, low, high in parts)
    return first.shape[0] + " ".join(words)


def _single(one: _Range) -> Iterator[tuple[str, int]]:
    if len(one.labels) < LEAST:
        yield from ((label.text, 1) for label in one.labels)
        return
    first, last = one.labels[0].text, one.labels[-1]
    words = last.text.removeprefix(last.shape[0]).split(" ")
    yield f"{first}-{' '.join(words[_changing(one)[0] :])}", len(one.labels)
