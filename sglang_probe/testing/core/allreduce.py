"""What SGLang's custom all-reduce asks for: one place for the fake classes and for scenarios that must add up."""

from __future__ import annotations

from .allocator import LARGE_STEP, MIDDLE_SEGMENT, round_up
from .scenario import MIB

MAX_SIZE = 8 * MIB
META_SIZE = 36 * 8 * 8 * 4 * 2
"""Stands for the size of the synchronisation block that the kernel library reports."""

V2_PULL_SIZE = 16 * MIB
V2_BLOCKS = 132
"""One of each kernel a multiprocessor, as many as an H200 has."""
V2_GRAPH_PARAMS = (1 + 131072) * 8 * 8
"""Pointers to each input of a graph: of eight ranks, whatever the group's size."""
V2_LINE = 128
KIB = MIB // 1024
V2_PUSH_SIZE = {2: 2 * MIB, 3: 512 * KIB, 4: 384 * KIB, 5: 256 * KIB, 6: 192 * KIB, 7: 192 * KIB, 8: 160 * KIB}


def v2_bytes(world_size: int, pull_size: int = V2_PULL_SIZE, push_size: int | None = None) -> int:
    """Return what CustomAllReduceV2 allocates in one piece: pull buffer, two push buffers per rank, signals, inputs."""
    push = V2_PUSH_SIZE[world_size] if push_size is None else push_size
    parts = (V2_BLOCKS * V2_LINE, V2_BLOCKS * 4, V2_GRAPH_PARAMS, pull_size, 2 * world_size * push)
    return sum(round_up(part, V2_LINE) for part in parts)


def device_cost(version: int, world_size: int) -> int:
    """Return what the card loses to the custom all-reduce of one rank, version 1 (three buffers) or 2.

    Version 1 at its default size: meta 8 MiB and a bit -> 10, data 8, rank_data 8 from a torch segment of 20: 38 MiB.
    """
    if version == 2:
        return round_up(v2_bytes(world_size), LARGE_STEP)
    return round_up(META_SIZE + MAX_SIZE, LARGE_STEP) + round_up(MAX_SIZE, LARGE_STEP) + MIDDLE_SEGMENT
