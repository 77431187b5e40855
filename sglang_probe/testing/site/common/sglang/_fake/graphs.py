"""Capturing graphs: memory from the graph's own pool while the stream captures, and the driver's share after it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from fakegpu.cuda import cuda

from sglang._fake import phases

FAILED = (
    "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)"
)


def capture(sizes: Iterable[int], torch_bytes: int, outside_bytes: int, phase: str) -> list[torch.Tensor]:
    """Capture one graph per size, the largest first; what they hold lives as long as the returned tensors.

    Raises Exception, as SGLang does, where memory runs out.
    """
    wanted = sorted(sizes, reverse=True)
    held: list[torch.Tensor] = []
    try:
        for number, size in enumerate(wanted):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                if number == 0:
                    phases.enter(phase)
                held += phases.hold(torch_bytes * size // sum(wanted), "graphs")
        phases.charge(outside_bytes, "graphs")
    except RuntimeError as error:
        raise Exception(f"Capture cuda graph failed: {error}\n{FAILED}") from error
    return held


def free_gib() -> float:
    """Return what SGLang shows in its progress bar, without emptying the cache."""
    return torch.cuda.mem_get_info(cuda().current)[0] / (1 << 30)
