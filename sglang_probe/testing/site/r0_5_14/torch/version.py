"""What this torch says it was built with."""

from __future__ import annotations

__version__ = "2.11.0+cu130"
cuda: str | None = "13.0"
hip: str | None = None
nccl: tuple[int, int, int] = (2, 28, 9)
