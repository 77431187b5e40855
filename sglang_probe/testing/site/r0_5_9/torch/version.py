"""What this torch says it was built with."""

from __future__ import annotations

__version__ = "2.9.1+cu128"
cuda: str | None = "12.8"
hip: str | None = None
nccl: tuple[int, int, int] = (2, 27, 5)
