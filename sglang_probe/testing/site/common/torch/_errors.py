"""torch's message when its allocator finds no memory, with the figures of the moment."""

from __future__ import annotations

from fakegpu.cuda import Cuda
from fakegpu.ledger import OutOfDeviceMemory

from torch._types import OutOfMemoryError

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def out_of_memory(process: Cuda, device: int, asked: int, refused: OutOfDeviceMemory) -> OutOfMemoryError:
    """Return the error for `asked` bytes on `device` that the card could not give."""
    held = process.ledger.held(refused.gpu)
    others = "".join(
        f"Process {pid} has {_human(size)} memory in use. " for pid, size in held.items() if pid != process.pid
    )
    allocator = process.allocator(device)
    unused = allocator.reserved.current - allocator.allocated.current
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_human(asked)}. GPU {device} has a total capacity of "
        f"{_human(process.card.cuda_total_bytes)} of which {_human(refused.free)} is free. {others}"
        f"Including non-PyTorch memory, this process has {_human(held.get(process.pid, 0))} memory in use. "
        f"Of the allocated memory {_human(allocator.allocated.current)} is allocated by PyTorch, and "
        f"{_human(unused)} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _human(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
