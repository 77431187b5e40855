"""What others held on a rank's device when it mattered: at the pre-load memory, at the budget, at the end.

Known from the process lists among the rank's readings. What is in the list before and in the list after a moment was
there; what came or left between the two is counted as not there. Without any list the last figure stands for all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sglang_probe.explain.subject import Subject, label
from sglang_probe.timeline.model import Neighbour, Process
from sglang_probe.timeline.processes import ended_ns, first_step


class Held(NamedTuple):
    """Bytes that others held."""

    pre_load: int = 0
    """When the pre-load memory was read."""
    available: int = 0
    """When the budget was computed."""
    now: int = 0
    """When the start failed, or at its end."""

    @property
    def most(self) -> int:
        """Return the most of the three."""
        return max(self)

    def plus(self, other: Held) -> Held:
        """Return both together."""
        return Held(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


Burden = Mapping[str, Held]
"""Label of a rank -> what others held on its device."""


class Lists(NamedTuple):
    """The process lists of a rank, in order: pid and start -> bytes."""

    times: list[int]
    tables: list[dict[tuple[int, int | None], int]]

    def at(self, one: Neighbour, moment: int | None) -> int:
        """Return what a process surely held at a moment; None stands for the end."""
        key = (one.pid, one.start_ticks)
        if moment is None:
            return self.tables[-1].get(key, 0)
        place = bisect_right(self.times, moment)
        before, after = (
            self.tables[max(place - 1, 0)].get(key, 0),
            self.tables[min(place, len(self.tables) - 1)].get(key, 0),
        )
        if place == 0:  # nothing was read before: then it was there if it is older than this rank
            return after if one.began_before_s is None or one.began_before_s > 0 else 0
        return min(before, after)


def lists_of(process: Process) -> Lists:
    """Return a rank's process lists."""
    found = []
    for step in process.steps:
        for moment, reading in ((step.mono_ns, step.before), (ended_ns(step), step.after)):
            if moment is not None and reading is not None and reading.nvml_processes is not None:
                found.append((moment, {(one.pid, one.start_ticks): one.bytes or 0 for one in reading.nvml_processes}))
    found.sort(key=lambda pair: pair[0])
    return Lists([moment for moment, _ in found], [table for _, table in found])


def burden_of(subject: Subject, mine: Callable[[Process, Neighbour], bool]) -> dict[str, Held]:
    """Return what the others that are meant held, rank by rank; only ranks where it is anything."""
    found: dict[str, Held] = {}
    for process in subject.ranks:
        meant = [one for one in process.neighbours if mine(process, one)]
        if meant:
            lists = lists_of(process)
            found[label(process)] = together(held(process, one, lists) for one in meant)
    return {who: sizes for who, sizes in found.items() if sizes.most}


def held(process: Process, one: Neighbour, lists: Lists | None = None) -> Held:
    """Return what one other process held on the rank's device."""
    known = lists_of(process) if lists is None else lists
    if not known.tables:
        last = 0 if one.gone else one.bytes or 0
        later = one.began_before_s is not None and one.began_before_s < 0
        return Held(0 if later else last, last, last)
    return Held(
        known.at(one, _end(process, "dist.init")),
        known.at(one, _begin(process, "kv.profile")),
        known.at(one, None),
    )


def together(parts: Iterable[Held]) -> Held:
    """Return the sum."""
    total = Held()
    for part in parts:
        total = total.plus(part)
    return total


def joined(*burdens: Burden) -> dict[str, Held]:
    """Return several burdens as one."""
    return {
        who: together(one[who] for one in burdens if who in one)
        for who in dict.fromkeys(w for one in burdens for w in one)
    }


def _end(process: Process, phase: str) -> int | None:
    step = first_step(process, phase)
    return None if step is None else ended_ns(step)


def _begin(process: Process, phase: str) -> int | None:
    step = first_step(process, phase)
    return None if step is None else step.mono_ns
