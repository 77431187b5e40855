"""The worlds of a run, as its ranks speak of them: who is in each, and who is missing."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgspec

from sglang_probe.timeline.actor import Actor
from sglang_probe.timeline.model import Missing, Rank

MAX_NAMED: Final = 10_000
"""Missing ranks named one by one, in all; a world size beyond that is more likely a broken line than a machine."""


class World(msgspec.Struct, eq=False):
    """One `torch.distributed` world."""

    size: int
    members: dict[int, Actor]
    """World rank -> process."""


def place_of(rank: Rank | None) -> tuple[int, int] | None:
    """Return (rank, size) in the world, from the world part or else from stage and tensor rank; None if unknown."""
    if rank is None:
        return None
    if rank.world is not None:
        return rank.world.rank, rank.world.size
    if rank.tp is None:
        return None
    stage, stages = (0, 1) if rank.pp is None else (rank.pp.rank, rank.pp.size)
    return stage * rank.tp.size + rank.tp.rank, stages * rank.tp.size


def worlds_of(actors: list[Actor]) -> tuple[list[World], list[Actor]]:
    """Return the worlds, and the ranks that never said where they stand."""
    keyed: dict[Any, World] = {}
    unkeyed: list[World] = []
    unplaced: list[Actor] = []
    ranks = [actor for actor in actors if actor.identity.is_rank]
    for actor in ranks:
        said = actor.identity.world
        if said is not None and said.rank is not None:
            keyed.setdefault(said.key, World(said.key.size, {})).members.setdefault(said.rank, actor)
    for actor in ranks:
        said = actor.identity.world
        if said is not None and said.rank is not None:
            continue
        place = place_of(actor.identity.rank)
        if place is None:
            unplaced.append(actor)
        else:
            _seat(actor, place, [keyed[key] for key in sorted(keyed)], unkeyed)
    return [keyed[key] for key in sorted(keyed)] + unkeyed, unplaced


def _seat(actor: Actor, place: tuple[int, int], keyed: list[World], unkeyed: list[World]) -> None:
    """Put a rank whose `dist.init` never named its world where its place is free."""
    rank, size = place
    for world in [*keyed, *unkeyed]:
        if world.size == size and rank not in world.members:
            world.members[rank] = actor
            return
    unkeyed.append(World(size, {rank: actor}))


def missing_of(worlds: list[World], actors: list[Actor], expected: int | None) -> tuple[Missing, ...]:
    """Return the ranks that no process has. `expected` is the world size by the server's arguments, used when no world
    was seen."""
    if not worlds and expected is not None:
        worlds = [World(expected, {})]
    seated = {id(actor) for world in worlds for actor in world.members.values()}
    nameless = [
        actor for actor in actors
        if id(actor) not in seated and (actor.identity.is_rank or actor.identity.role == "other")
    ]  # fmt: skip
    reason = "it wrote nothing, or its file is not here"
    if nameless:
        names = ", ".join(actor.name for actor in nameless[:3])
        reason = f"it wrote nothing, or it is a process that ended before it knew its rank: {names}"
    absent = (
        Missing(world_rank=rank, world_size=world.size, reason=reason)
        for world in worlds
        for rank in range(min(world.size, MAX_NAMED))
        if rank not in world.members
    )
    return tuple(islice(absent, MAX_NAMED))
