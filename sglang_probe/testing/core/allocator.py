"""torch's caching allocator, as far as its figures go: what tensors hold, what stays reserved, the peaks.

The rules are torch's: sizes round up to 512 bytes; a request up to 1 MiB comes from a segment of 2 MiB, one under
10 MiB from a segment of 20 MiB, a larger one from a segment of its own, rounded up to 2 MiB. What is freed stays
reserved until `empty_cache`, or for good in the pool of a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .ledger import OutOfDeviceMemory
from .scenario import MIB

SMALL_REQUEST = 1 * MIB
SMALL_SEGMENT = 2 * MIB
MIDDLE_REQUEST = 10 * MIB
MIDDLE_SEGMENT = 20 * MIB
LARGE_STEP = 2 * MIB
BLOCK = 512

MoveSegment = Callable[[int], None]
"""Asks the device for bytes (negative: returns them); raises where there are none."""


def round_up(size: int, step: int) -> int:
    """Return `size` raised to a multiple of `step`."""
    return -(-size // step) * step


@dataclass(eq=False)
class Segment:
    """One piece of device memory that the allocator holds."""

    size: int
    small: bool
    graph_pool: bool
    used: int = 0

    @property
    def split_off(self) -> int:
        """Bytes of a free block that was split off one in use; torch splits no large one for 1 MiB or less."""
        rest = self.size - self.used
        return rest if self.used and (self.small or rest > SMALL_REQUEST) else 0


@dataclass(frozen=True, eq=False)
class Block:
    """What one tensor holds of a segment."""

    segment: Segment
    size: int


@dataclass
class Gauge:
    """A figure with its peak and the totals of what came and went."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def move(self, size: int) -> None:
        """Add `size`, which may be negative."""
        self.current += size
        self.peak = max(self.peak, self.current)
        if size > 0:
            self.allocated += size
        else:
            self.freed -= size


@dataclass
class CachingAllocator:
    """The allocator of one process on one device. `move` is told of every change of what is reserved."""

    move: MoveSegment
    allocated: Gauge = field(default_factory=Gauge)
    reserved: Gauge = field(default_factory=Gauge)
    retries: int = 0
    ooms: int = 0
    _segments: list[Segment] = field(default_factory=list)

    def allocate(self, size: int, *, graph_pool: bool = False) -> Block:
        """Take `size` bytes for a tensor. Raises what `move` raises, after one retry with an emptied cache."""
        need = round_up(max(size, 1), BLOCK)
        segment = self._find(need, graph_pool) or self._grow(need, graph_pool)
        segment.used += need
        self.allocated.move(need)
        return Block(segment, need)

    def free(self, block: Block) -> None:
        """Give a tensor's bytes back to the cache; the device gets nothing back yet."""
        block.segment.used -= block.size
        self.allocated.move(-block.size)

    def empty_cache(self) -> None:
        """Return every wholly unused segment to the device, except those of a graph's pool."""
        for segment in [one for one in self._segments if not one.used and not one.graph_pool]:
            self._segments.remove(segment)
            self.reserved.move(-segment.size)
            self.move(-segment.size)

    def reset_peaks(self) -> None:
        self.allocated.peak = self.allocated.current
        self.reserved.peak = self.reserved.current

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments in the shape of torch's `memory_snapshot`."""
        return [
            {
                "total_size": one.size,
                "allocated_size": one.used,
                "segment_type": "small" if one.small else "large",
                "segment_pool_id": (0, 1) if one.graph_pool else (0, 0),
            }
            for one in self._segments
        ]

    def statistics(self) -> dict[str, Any]:
        """Return the figures in the nested shape of torch's `memory_stats_as_nested_dict`."""
        return {
            "allocated_bytes": {"all": vars(self.allocated).copy()},
            "active_bytes": {"all": vars(self.allocated).copy()},
            "reserved_bytes": {"all": vars(self.reserved).copy()},
            "inactive_split_bytes": {"all": {"current": sum(one.split_off for one in self._segments)}},
            "segment": {"all": {"current": len(self._segments)}},
            "num_alloc_retries": self.retries,
            "num_ooms": self.ooms,
        }

    def _find(self, need: int, graph_pool: bool) -> Segment | None:
        small = need <= SMALL_REQUEST
        fitting = [
            one
            for one in self._segments
            if one.small == small and one.graph_pool == graph_pool and one.size - one.used >= need
        ]
        return min(fitting, key=lambda one: one.size - one.used, default=None)

    def _grow(self, need: int, graph_pool: bool) -> Segment:
        small = need <= SMALL_REQUEST
        size = SMALL_SEGMENT if small else MIDDLE_SEGMENT if need < MIDDLE_REQUEST else round_up(need, LARGE_STEP)
        try:
            self.move(size)
        except OutOfDeviceMemory:
            self.retries += 1
            self.empty_cache()
            try:
                self.move(size)
            except OutOfDeviceMemory:
                self.ooms += 1
                raise
        self.reserved.move(size)
        segment = Segment(size, small, graph_pool)
        self._segments.append(segment)
        return segment
