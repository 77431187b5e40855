"""Hands out tokens one by one."""

from __future__ import annotations

import abc
from typing import Any


class BaseTokenToKVPoolAllocator(abc.ABC):
    @abc.abstractmethod
    def __init__(self, size: int, page_size: int, dtype: Any, device: str, kvcache: Any, need_sort: bool) -> None:
        self.size, self.page_size, self._kvcache = size, page_size, kvcache

    def get_kvcache(self) -> Any:
        return self._kvcache


class TokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    def __init__(self, size: int, dtype: Any, device: str, kvcache: Any, need_sort: bool) -> None:
        super().__init__(size, 1, dtype, device, kvcache, need_sort)
