"""Which speculative algorithm, and the worker that drafts for it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any


class SpeculativeAlgorithm(Enum):
    EAGLE = auto()
    EAGLE3 = auto()
    STANDALONE = auto()
    NGRAM = auto()
    NONE = auto()

    @classmethod
    def from_string(cls, name: str | None) -> SpeculativeAlgorithm:
        return cls.NONE if name is None else cls[name.upper()]

    def is_none(self) -> bool:
        return self is SpeculativeAlgorithm.NONE

    def is_eagle(self) -> bool:
        return self in (SpeculativeAlgorithm.EAGLE, SpeculativeAlgorithm.EAGLE3)

    def create_worker(self, server_args: Any) -> Any:
        """Return the class of the draft worker. Raises ValueError for an algorithm that this stand-in has not."""
        if not self.is_eagle():
            raise ValueError(f"the fake sglang drafts with EAGLE only, not with {self.name}")
        from sglang.srt.speculative.eagle_worker import EAGLEWorker

        return EAGLEWorker
