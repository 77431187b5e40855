"""The base classes of draft workers."""

from __future__ import annotations

from abc import ABC
from typing import Any


class EagleDraftWorkerBase(ABC):
    def alloc_memory_pool(self, **kwargs: Any) -> None:
        """Nothing to allocate."""

    def init_attention_backends(self) -> None:
        """No backend."""

    def init_cuda_graphs(self) -> None:
        """No graph."""


class BaseSpecWorker(ABC):
    def alloc_memory_pool(self, **kwargs: Any) -> None:
        """Nothing to allocate."""

    def init_attention_backends(self) -> None:
        """No backend."""

    def init_cuda_graphs(self) -> None:
        """No graph."""
