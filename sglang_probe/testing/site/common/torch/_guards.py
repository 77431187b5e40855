"""Decorators and contexts that only mark code."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType


class no_grad(ContextDecorator):
    """Marks code without gradients; there are none here."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


inference_mode = no_grad
