"""What a step cost by itself: its delta less that of the steps inside it, so that a sum counts each byte once.

Worked example: dist.init has delta -1.00 GiB; inside it a communicator has -0.75, and inside that another has -0.25.
Their own shares are -0.25, -0.50 and -0.25: together -1.00. Were the middle delta unknown, the outer share would be
-1.00 + 0.25 = -0.75, the middle's unknown and contained in it, and the sum still -1.00.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Shares(msgspec.Struct, frozen=True, gc=False):
    """One step's place in the tree and its share of the cost."""

    depth: int
    self_delta: int | None
    includes: tuple[str, ...] = ()
    """Steps inside this one whose own delta is unknown, so that their share is in this one's."""


def shares(parents: Mapping[str, str | None], deltas: Mapping[str, int | None]) -> dict[str, Shares]:
    """Return each step's share. A parent that has no step, or that would close a circle, counts as none."""
    depths = _depths(parents)
    inside: dict[str, list[str]] = {}
    for step, parent in parents.items():
        if parent is not None and depths[step] > 0:
            inside.setdefault(parent, []).append(step)
    found: dict[str, Shares] = {}
    covered: dict[str, int] = {}
    """Bytes of a step that the steps around it need not carry: its delta, or what is known inside it."""
    unknown: dict[str, tuple[str, ...]] = {}
    for step in sorted(parents, key=depths.__getitem__, reverse=True):
        delta = deltas[step]
        known_inside = 0
        unknown_inside: tuple[str, ...] = ()
        if step in inside:
            known_inside = sum([covered[child] for child in inside[step]])
            unknown_inside = tuple(sorted([name for child in inside[step] for name in unknown[child]]))
        if delta is None:
            found[step] = Shares(depths[step], None)
            covered[step], unknown[step] = known_inside, (*unknown_inside, step)
        else:
            found[step] = Shares(depths[step], delta - known_inside, unknown_inside)
            covered[step], unknown[step] = delta, ()
    return found


def _depths(parents: Mapping[str, str | None]) -> dict[str, int]:
    """Return how many steps each is inside of; 0 where its parent is missing or the parents form a circle."""
    depths: dict[str, int] = {}
    for step in sorted(parents):
        outer = parents[step]
        if step not in depths and outer is not None and outer in depths:  # as nearly always
            depths[step] = depths[outer] + 1
            continue
        chain: dict[str, None] = {}
        current: str | None = step
        while current is not None and current in parents and current not in depths and current not in chain:
            chain[current] = None
            current = parents[current]
        base = depths.get(current, -1) if current is not None else -1
        for link in reversed(chain):
            base += 1
            depths[link] = base
    return depths
