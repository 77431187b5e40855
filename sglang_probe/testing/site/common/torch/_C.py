"""The corner of torch's extension module that a probe needs."""

from __future__ import annotations

from fakegpu.cuda import cuda


class ProcessGroup:
    """The base class of process groups."""


def _cuda_hasPrimaryContext(device: int) -> bool:
    """Return whether this process has a primary context on `device`; makes none."""
    process = cuda()
    process.note("torch._C._cuda_hasPrimaryContext", device)
    if not 0 <= device < len(process.visible):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return process.has_context(device)


def _cuda_getDeviceCount() -> int:
    """Return how many devices CUDA shows; initialises nothing."""
    return len(cuda().visible)
