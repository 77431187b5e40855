"""The NCCL that torch was built with."""

from __future__ import annotations

from torch.version import nccl as _nccl


def version() -> tuple[int, int, int]:
    """Return NCCL's version."""
    return _nccl
