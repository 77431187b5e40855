"""The caching allocator's figures follow torch's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.testing.core.allocator import Block, CachingAllocator, round_up
from sglang_probe.testing.core.ledger import OutOfDeviceMemory
from sglang_probe.testing.core.scenario import MIB


class Device:
    """Counts what the allocator holds; may be small."""

    def __init__(self, size: int = 1 << 60) -> None:
        self.held, self.size = 0, size

    def move(self, size: int) -> None:
        if self.held + size > self.size:
            raise OutOfDeviceMemory(0, size, self.size - self.held)
        self.held += size


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 11 * MIB + 512, 12 * MIB),
    ],
)
def test_a_request_is_rounded_and_its_segment_has_torchs_size(asked: int, allocated: int, reserved: int) -> None:
    device = Device()
    allocator = CachingAllocator(device.move)
    allocator.allocate(asked)
    assert (allocated, reserved, reserved) == (allocator.allocated.current, allocator.reserved.current, device.held)


def test_what_is_freed_stays_reserved_until_the_cache_is_emptied() -> None:
    device = Device()
    allocator = CachingAllocator(device.move)
    allocator.free(allocator.allocate(64 * MIB))
    assert (0, 64 * MIB) == (allocator.allocated.current, allocator.reserved.current)
    allocator.empty_cache()
    assert (0, 0) == (allocator.reserved.current, device.held)
    assert (64 * MIB, 64 * MIB) == (allocator.allocated.peak, allocator.reserved.peak)


def test_what_is_cached_is_used_again() -> None:
    device = Device()
    allocator = CachingAllocator(device.move)
    allocator.free(allocator.allocate(64 * MIB))
    allocator.allocate(64 * MIB)
    assert 64 * MIB == device.held


def test_a_graphs_pool_outlives_its_tensors() -> None:
    device = Device()
    allocator = CachingAllocator(device.move)
    allocator.free(allocator.allocate(64 * MIB, graph_pool=True))
    allocator.empty_cache()
    assert 64 * MIB == device.held
    allocator.allocate(64 * MIB)
    assert 128 * MIB == device.held, "what is no graph's does not come from a graph's pool"


def test_a_full_device_is_tried_again_with_an_emptied_cache() -> None:
    device = Device(size=100 * MIB)
    allocator = CachingAllocator(device.move)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(80 * MIB)
    assert (80 * MIB, 1, 0) == (device.held, allocator.retries, allocator.ooms)
    with pytest.raises(OutOfDeviceMemory):
        allocator.allocate(80 * MIB)
    assert (80 * MIB, 1) == (allocator.allocated.current, allocator.ooms)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 64 * MIB)), max_size=40))
def test_whatever_comes_and_goes_the_figures_agree(steps: list[tuple[bool, int]]) -> None:
    device = Device()
    allocator = CachingAllocator(device.move)
    live: list[Block] = []
    for take, size in steps:
        if take or not live:
            live.append(allocator.allocate(size))
        else:
            allocator.free(live.pop(size % len(live)))
        assert sum(block.size for block in live) == allocator.allocated.current
        assert allocator.allocated.current <= allocator.reserved.current == device.held
        assert allocator.reserved.current == sum(one["total_size"] for one in allocator.segments())
        assert allocator.allocated.peak >= allocator.allocated.current
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert 0 == device.held


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 24))
def test_rounding_up_reaches_the_next_multiple(size: int, step: int) -> None:
    rounded = round_up(size, step)
    assert rounded % step == 0
    assert size <= rounded < size + step
