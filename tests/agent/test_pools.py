"""Pools as they report themselves, resized ones among them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sglang_probe.agent.readers import pools

ADDRESSES = 1 << 34
BACKED = 1 << 20


class Pool:
    """A pool of keys and values; where it is sized after graph capture, its tensors are addresses alone."""

    def __init__(self, post_capture: bool) -> None:
        self.size, self.layer_num, self.page_size, self.dtype = 1000, 2, 1, "torch.bfloat16"
        self.post_capture_active = post_capture
        self.post_capture_backed_bytes = BACKED if post_capture else 0

    def get_kv_size_bytes(self) -> tuple[int, int]:
        return ADDRESSES // 2, ADDRESSES // 2


def call(instance: Any, **arguments: Any) -> Any:
    return SimpleNamespace(instance=instance, arguments=arguments, notes={}, result=None, error=None)


def test_a_pool_says_what_its_tensors_hold() -> None:
    said = pools.SIZED.end(call(Pool(post_capture=False), num_tokens=7))
    assert (said["bytes"], said["k_bytes"], said["tokens"]) == (ADDRESSES, ADDRESSES // 2, 7)
    assert "reserved_bytes" not in said


def test_addresses_that_nothing_stands_behind_are_not_counted_as_memory() -> None:
    said = pools.SIZED.end(call(Pool(post_capture=True), num_tokens=7))
    assert (said["bytes"], said["reserved_bytes"], said["k_bytes"]) == (BACKED, ADDRESSES, None)


def test_a_pool_that_is_sized_after_capture_says_what_stands_behind_it() -> None:
    pool = Pool(post_capture=True)
    said = pools.BACKED.end(call(pool, final_num_tokens=400))
    assert (said["bytes"], said["tokens"]) == (BACKED, 400)
    assert said["pool_id"] == pools.SIZED.end(call(pool))["pool_id"]


@pytest.mark.parametrize(("post_capture", "memory"), [(False, ADDRESSES), (True, BACKED)])
def test_a_unified_buffer_likewise(post_capture: bool, memory: int) -> None:
    owner = SimpleNamespace(backed_bytes=BACKED) if post_capture else None
    buffer = SimpleNamespace(total_bytes=ADDRESSES, post_capture_active=post_capture, _post_capture_owner=owner)
    assert pools.UNIFIED.end(call(buffer))["bytes"] == memory
