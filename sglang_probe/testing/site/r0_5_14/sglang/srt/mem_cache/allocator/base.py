"""The base class of token allocators."""

from __future__ import annotations

import abc
from typing import Any


class BaseTokenToKVPoolAllocator(abc.ABC):
    @abc.abstractmethod
    def __init__(self, size: int, page_size: int, dtype: Any, device: str, kvcache: Any, need_sort: bool) -> None:
        self.size, self.page_size, self._kvcache = size, page_size, kvcache

    def get_kvcache(self) -> Any:
        return self._kvcache
