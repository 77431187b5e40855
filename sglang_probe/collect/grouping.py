"""Processes -> launches: which of them were started together?

A run id is not enough. torchrun gives every rank an id of its own, `--nnodes` every host, and a user's own id may have
been started twice. So the process trees of a run id are taken apart where a rank comes again; then launches that met in
one world are put together, whatever their run ids; then what is left of a run id, where it ran at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from sglang_probe.collect.clock import Clock
from sglang_probe.collect.launch import Launch, Member, order
from sglang_probe.collect.processes import ProcessEvents, sortable
from sglang_probe.collect.records import Rank
from sglang_probe.events.names import PROCESS_START

ROOT_ROLE: Final = "scheduler.init"
"""What every rank begins with."""


def launches(processes: Iterable[ProcessEvents], clock: Clock) -> list[Launch]:
    """Return the launches, ordered by their start. A process that started several is a member of each."""
    members = [Member(process, clock) for process in processes]
    members.sort(key=lambda member: (member.start, sortable(member.process.key)))
    parents = _parents(members)
    for member in [member for member, parent in parents.items() if _is_fork(member, parent)]:
        member.disown()
    found = [launch for family in _families(members, parents) for launch in _waves(family, parents)]
    found = _joined_whatever_the_clocks(_joined_by_world(found))
    return sorted(_joined_by_run_id(found), key=order)


def _parents(members: list[Member]) -> dict[Member, Member]:
    """Return each member's parent process, where that is a member of the same run id on the same boot."""
    by_pid: defaultdict[tuple[str, str, int], list[Member]] = defaultdict(list)
    for member in members:
        by_pid[member.process.key.run_id, member.boot, member.process.key.pid].append(member)
    found = {}
    for member in members:
        proc = member.process.records[0].proc
        if proc is not None and proc.parent is not None:
            namesakes = by_pid.get((member.process.key.run_id, member.boot, proc.parent), [])
            older = [other for other in namesakes if other is not member and _ticks(other) <= _ticks(member)]
            if older:
                found[member] = max(older, key=_ticks)
    return found


def _is_fork(member: Member, parent: Member) -> bool:
    """Say whether a process only copies its parent's rank: one of its own starts anew and begins `scheduler.init`."""
    if member.rank is None or parent.rank is None or not _agree(member.rank, parent.rank):
        return False
    records = member.process.records
    if records[0].seq == 0 and records[0].event != PROCESS_START:
        return True
    return not any(record.role == ROOT_ROLE and record.kind == "begin" for record in records)


def _agree(copy: Rank, rank: Rank) -> bool:
    """Say whether nothing in a copy, made when less may have been known, contradicts a rank."""
    pairs = ((getattr(copy, name), getattr(rank, name)) for name in Rank.__struct_fields__)
    return all(mine in (None, parents) for mine, parents in pairs)


def _ticks(member: Member) -> int:
    return member.process.key.start_ticks or 0


def _families(members: list[Member], parents: dict[Member, Member]) -> Iterable[list[Member]]:
    """Return the process trees, each in the order of `members`."""
    root = {member: member for member in members}

    def find(member: Member) -> Member:
        while root[member] is not member:
            root[member] = member = root[root[member]]
        return member

    for child, parent in parents.items():
        root[find(child)] = find(parent)
    trees: defaultdict[Member, list[Member]] = defaultdict(list)
    for member in members:
        trees[find(member)].append(member)
    return trees.values()


def _waves(family: list[Member], parents: dict[Member, Member]) -> list[Launch]:
    """Take a tree apart where a rank comes again: one process may start several servers, one after the other."""
    waves: list[Launch] = []
    for member in family:
        if member.is_rank:
            if not waves or waves[-1].repeats(member):
                waves.append(Launch([]))
            waves[-1].add(member)
    if len(waves) < 2:
        return [Launch(family)]
    starters = [_ancestors(wave, parents) for wave in waves]
    starts = [wave.start for wave in waves]
    for member in family:
        if not member.is_rank:
            started = [wave for wave, ancestors in zip(waves, starters, strict=True) if member in ancestors]
            first, *others = started or [waves[_nearest(starts, member.start)]]
            first.add(member)
            for wave in others:
                wave.share(member)
    return waves


def _ancestors(launch: Launch, parents: dict[Member, Member]) -> set[Member]:
    found: set[Member] = set()
    for member in launch.members:
        parent = parents.get(member)
        while parent is not None and parent not in found:
            found.add(parent)
            parent = parents.get(parent)
    return found


def _nearest(starts: list[int], start: int) -> int:
    return min(range(len(starts)), key=lambda index: abs(starts[index] - start))


def _joined_by_world(found: list[Launch]) -> list[Launch]:
    """Join launches whose members met in one world at the same time, each rank of it once."""
    meetings: defaultdict[Hashable, list[Launch]] = defaultdict(list)
    for launch in sorted(found, key=order):
        places = {
            (member.world.key, member.boot if member.world.key.is_local else "")
            for member in launch.members
            if member.world is not None
        }
        for place in places:
            meetings[place].append(launch)
    return _join(found, meetings.values(), lambda one, other: one.overlaps(other) and one.completes(other))


def _joined_whatever_the_clocks(found: list[Launch]) -> list[Launch]:
    """Join launches of one run id whose hosts met in one world, however far their wall clocks are apart.

    Of several that fit, as after a restart, the first of one host belongs to the first of the other.
    """
    meetings: defaultdict[Hashable, list[Launch]] = defaultdict(list)
    for launch in sorted(found, key=order):
        for key in {key for key, _ in launch.places if not key.is_local}:
            for run_id in {member.process.key.run_id for member in launch.members}:
                meetings[run_id, key].append(launch)
    return _join(found, meetings.values(), Launch.may_have_met, by_start=True)


def _joined_by_run_id(found: list[Launch]) -> list[Launch]:
    """Join launches of one run id that ran at the same time, where nothing shows that they were started apart."""
    same_id: defaultdict[Hashable, list[Launch]] = defaultdict(list)
    for launch in sorted(found, key=order):
        for run_id in {member.process.key.run_id for member in launch.members}:
            same_id[run_id].append(launch)
    return _join(found, same_id.values(), lambda one, other: one.overlaps(other) and not one.excludes(other))


def _join(
    found: list[Launch],
    buckets: Iterable[list[Launch]],
    fit: Callable[[Launch, Launch], bool],
    *,
    by_start: bool = False,
) -> list[Launch]:
    """Join launches that share a bucket and fit: each to the nearest in start, or `by_start` to the first."""
    joined: dict[Launch, Launch] = {}
    for bucket in buckets:
        heads: list[Launch] = []
        for launch in bucket:
            current = launch
            while current in joined:
                current = joined[current]
            if current in heads:
                continue
            partners = [head for head in heads if fit(head, current)]
            if partners:
                near = partners[0] if by_start else min(partners, key=lambda head: abs(head.start - launch.start))
                joined[current] = near
                near.absorb(current)
            else:
                heads.append(current)
    return [launch for launch in found if launch not in joined]
