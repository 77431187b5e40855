"""The base class of pools with a window part."""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.memory_pool import KVCache


class BaseSWAKVPool(KVCache):
    swa_kv_pool: Any
