"""Processes of a run on a device where they do not belong, in the words of `explain`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.diff.model import Piece
from sglang_probe.explain.diff.names import called
from sglang_probe.explain.diff.values import is_tenants
from sglang_probe.explain.others import held
from sglang_probe.explain.phrases import gpu
from sglang_probe.explain.rules.devices import is_stray, size_of
from sglang_probe.explain.subject import Subject, label
from sglang_probe.figures import counted, gib
from sglang_probe.timeline.model import Neighbour, Process, Run

MANY: Final = 3


class Stray(NamedTuple):
    """A process of the run on another's device."""

    who: str
    pid: int
    device: str
    bytes: int | None


def strays_of(run: Run) -> list[Stray]:
    """Return the processes of a run that hold memory of a device where they do not belong, those with most first."""
    subject = Subject(run)
    found = {(stray.device, stray.pid): stray for stray in _strays(subject)}
    return sorted(found.values(), key=lambda stray: (-(stray.bytes or 0), stray.device, stray.pid))


def _strays(subject: Subject) -> Iterator[Stray]:
    for process in subject.ranks:
        for neighbour in process.neighbours:
            if is_stray(subject, process, neighbour) and held(process, neighbour).most:
                other = subject.by_pid.get((process.host, neighbour.pid))
                yield Stray(_name(other, neighbour), neighbour.pid, gpu(process, subject), size_of(neighbour))


def _name(other: Process | None, neighbour: Neighbour) -> str:
    return label(other) if other is not None else neighbour.name or "no process that left events"


def strays_in_words(runs: Sequence[Run], names: Sequence[str]) -> str | None:
    """Return who came where it does not belong, or went from there; None where both runs have such or neither has."""
    before, after = map(strays_of, runs)
    if bool(before) == bool(after):
        return None
    if before:
        there = "; ".join(f"{one.who}, pid {one.pid}: {_held(one)}" for one in before[:MANY])
        return f"no process of the run is any more where it does not belong ({there} in {called(names[0])})"
    one, *others = after
    more = f", and {counted(len(others), 'more such', 'more such')}" if others else ""
    return f"a process of the run ({one.who}, pid {one.pid}) holds {_held(one)}, where it does not belong{more}"


def _held(one: Stray) -> str:
    return f"{'memory' if one.bytes is None else f'{gib(one.bytes)} GiB'} on {one.device}"


def are_behind(piece: Piece, runs: Sequence[Run]) -> bool:
    """Say whether what changed of others' memory on a card is what such processes hold of one.

    Worked example, in GiB: 0.003 before and 0.605 after are 0.602 more, and a context of 0.596 came.
    """
    before, after = piece.values
    if piece.part != "others" or before is None or after is None:
        return False
    came = defaultdict[str, int](int)
    for sign, run in zip((-1, 1), runs, strict=True):
        for one in strays_of(run):
            came[one.device] += sign * (one.bytes or 0)
    changed = after - before
    return any(size and is_tenants(size, changed) for size in came.values())
