"""How far the wall clocks of the hosts of a launch are apart.

`dist.init` ends with a collective, so no rank leaves it before every rank has entered it: its ends lie milliseconds
apart in true time, and what `ts` says beyond that is skew. Worked example: host A's ranks end at 10.000 s and 10.002 s
by their own clock, host B's one at 12.001 s: B is 2.001 s ahead (from median to median), give or take 0.002 s (the
spread on one host).
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median_low

import msgspec

from sglang_probe.collect.clock import Clock
from sglang_probe.collect.launch import Launch, Member
from sglang_probe.collect.worlds import WorldKey


class HostSkew(msgspec.Struct, frozen=True):
    """The wall clock of one boot against that of the reference boot. All figures in nanoseconds."""

    boot: str
    host: str
    against: str
    """Host of the reference boot."""
    ahead: int
    spread: int
    """How far the ends lie apart on one host: the estimate is good to about this."""
    at_least: int | None = None
    at_most: int | None = None
    """Hard bounds: no rank ends before every rank has begun."""


class _Ends(msgspec.Struct):
    """What one boot's ranks say of one world's `dist.init`, in wall time of that boot."""

    begins: list[int]
    ends: list[int]


def skews(launch: Launch, clock: Clock) -> list[HostSkew]:
    """Return the skew of each boot but the reference (that of the lowest rank), where a shared `dist.init` tells it."""
    boots = sorted({member.boot for member in launch.members})
    if len(boots) < 2:
        return []
    hosts = {member.boot: member.process.key.host for member in launch.members}
    reference = min(launch.members, key=_lowest_rank).boot
    found: dict[str, HostSkew] = {reference: HostSkew(reference, hosts[reference], hosts[reference], 0, 0)}
    worlds = _worlds(launch, clock)
    for _ in boots:  # a boot may be tied to the reference through another one
        for world in worlds:
            _tie(world, found, hosts, hosts[reference])
    del found[reference]
    return [found[boot] for boot in boots if boot in found]


def _lowest_rank(member: Member) -> tuple[int, str]:
    rank = None if member.world is None else member.world.rank
    return (1 << 62 if rank is None else rank), member.boot


def _worlds(launch: Launch, clock: Clock) -> list[dict[str, _Ends]]:
    worlds: defaultdict[WorldKey, dict[str, _Ends]] = defaultdict(dict)
    for member in launch.members:
        world = member.world
        if world is None or world.began is None or world.ended is None or clock.offsets.get(member.boot) is None:
            continue
        ends = worlds[world.key].setdefault(member.boot, _Ends([], []))
        ends.begins.append(clock.at(member.boot, world.began))
        ends.ends.append(clock.at(member.boot, world.ended))
    return [worlds[key] for key in sorted(worlds)]


def _tie(world: dict[str, _Ends], found: dict[str, HostSkew], hosts: dict[str, str], against: str) -> None:
    known = next((boot for boot in sorted(world) if boot in found), None)
    if known is None:
        return
    base, ahead = world[known], found[known].ahead
    for boot, ends in world.items():
        if boot not in found:
            found[boot] = HostSkew(
                boot,
                hosts[boot],
                against,
                ahead + median_low(ends.ends) - median_low(base.ends),
                found[known].spread + max(_range(ends.ends), _range(base.ends)),
                ahead + max(ends.begins) - min(base.ends),
                ahead + min(ends.ends) - max(base.begins),
            )


def _range(values: list[int]) -> int:
    return max(values) - min(values)
