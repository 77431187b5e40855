"""A launch: processes that were started together, and the questions that tell two launches apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sglang_probe.collect.clock import SECOND, Clock, boot_of
from sglang_probe.collect.processes import ProcessEvents, sortable
from sglang_probe.collect.records import Rank
from sglang_probe.collect.worlds import Membership, WorldKey, last_rank, membership
from sglang_probe.events.names import MEMORY_EVENT_PREFIX

CLOCK_SLACK_NS: Final = 30 * SECOND
"""How far the wall clocks of two hosts may be apart when their overlap in time is judged."""


class Member:
    """A process as the grouping sees it. Times are nanoseconds on one scale."""

    def __init__(self, process: ProcessEvents, clock: Clock) -> None:
        self.process = process
        self.boot = boot_of(process)
        self.rank: Rank | None = last_rank(process.records)
        self.world: Membership | None = membership(process, self.rank)
        times = [record.mono_ns for record in process.records]
        self.start = clock.at(self.boot, min(times))
        self.end = clock.at(self.boot, max(times))
        self.is_launcher = process.records[-1].proc is not None and process.records[-1].proc.role == "launcher"
        self.is_rank = self.rank is not None or self.world is not None
        self.is_fork = False
        """Forked by a rank inside a hooked call, whose name it took along: it holds no model."""

    def disown(self) -> None:
        """Take away the rank that a forked process brought along from its parent."""
        self.rank = self.world = None
        self.is_rank, self.is_fork = False, True


class Launch:
    """Members that were started together, as far as is known so far."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members: list[Member] = []
        self.boots: set[str] = set()
        self.launcher_boots: set[str] = set()
        self.places: set[tuple[WorldKey, int]] = set()
        self.ranks: dict[Rank, tuple[int, int]] = {}
        """Rank -> the stretch of time in which a member had it."""
        self.start = self.end = 0
        self._known: set[Member] = set()
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """Take a member in, once."""
        if member in self._known:
            return
        self._known.add(member)
        self.start = min(self.start, member.start) if self.members else member.start
        self.end = max(self.end, member.end) if self.members else member.end
        self.members.append(member)
        self.boots.add(member.boot)
        if member.is_launcher:
            self.launcher_boots.add(member.boot)
        if member.world is not None and member.world.rank is not None:
            self.places.add((member.world.key, member.world.rank))
        if member.rank is not None:
            start, end = self.ranks.get(member.rank, (member.start, member.end))
            self.ranks[member.rank] = min(start, member.start), max(end, member.end)

    def share(self, member: Member) -> None:
        """Take in a member that belongs to an earlier launch too: it says nothing about when this one began."""
        self._known.add(member)
        self.members.append(member)
        if member.is_launcher:
            self.launcher_boots.add(member.boot)

    def absorb(self, other: Launch) -> None:
        """Take in all members of another launch."""
        for member in other.members:
            self.add(member)

    def repeats(self, member: Member) -> bool:
        """Say whether a member already has this one's place: its rank in a world, or its rank at another time."""
        if member.world is not None and (member.world.key, member.world.rank) in self.places:
            return True
        held = None if member.rank is None else self.ranks.get(member.rank)
        return held is not None and (held[1] < member.start or member.end < held[0])

    def overlaps(self, other: Launch) -> bool:
        """Say whether the two ran at the same time; hosts' clocks may differ a little."""
        slack = 0 if self.boots & other.boots else CLOCK_SLACK_NS
        return self.start <= other.end + slack and other.start <= self.end + slack

    @property
    def has_rank(self) -> bool:
        """True where a rank of it began: of all processes only ranks write memory events."""
        return any(
            member.is_rank or any(record.event.startswith(MEMORY_EVENT_PREFIX) for record in member.process.records)
            for member in self.members
        )

    def completes(self, other: Launch) -> bool:
        """Say whether no place of one in a world is taken in the other."""
        return self.places.isdisjoint(other.places)

    def may_have_met(self, other: Launch) -> bool:
        """Say whether two launches on different machines can be the halves of one: the collective that ends `dist.init`
        ended for both or for neither."""
        return not self.boots & other.boots and self.completes(other) and self._got_out == other._got_out

    @property
    def _got_out(self) -> bool:
        return any(member.world is not None and member.world.ended is not None for member in self.members)

    def excludes(self, other: Launch) -> bool:
        """Say whether something shows that the two were started apart: each has a launcher on one machine, or a rank of
        one is a rank of the other."""
        if self.launcher_boots & other.launcher_boots:
            return True
        worlds = {key for key, _ in self.places} & {key for key, _ in other.places}
        return bool(worlds) or not self.ranks.keys().isdisjoint(other.ranks.keys())


def order(launch: Launch) -> tuple[int, tuple[str, str, int, int]]:
    """Return a key that orders launches by their start."""
    return launch.start, sortable(first_member(launch).process.key)


def first_member(launch: Launch) -> Member:
    """Return the process that started first."""
    return min(launch.members, key=lambda member: (member.start, sortable(member.process.key)))
