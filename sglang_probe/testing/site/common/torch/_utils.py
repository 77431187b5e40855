"""Small helpers that SGLang reaches for."""

from __future__ import annotations

from torch._types import dtype


def _element_size(kind: dtype) -> int:
    """Return the bytes of one element."""
    return kind.itemsize
