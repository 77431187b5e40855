from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

__all__ = ["BaseTokenToKVPoolAllocator", "TokenToKVPoolAllocator"]
