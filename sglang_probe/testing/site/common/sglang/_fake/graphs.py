"""Capturing graphs: memory from the graph's own pool while the stream captures, and the driver's share after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from fakegpu.cuda import cuda

from sglang._fake import phases

FAILED = (
    "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)"
)


Held: TypeAlias = list[torch.Tensor]


def _run(size: int, forward: Callable[[], Held]) -> Held:
    return forward()


def capture(
    sizes: Iterable[int],
    torch_bytes: int,
    outside_bytes: int,
    phase: str,
    one: Callable[[int, Callable[[], Held]], Held] = _run,
) -> Held:
    """Capture one graph per size, the largest first; what they hold lives as long as the returned tensors.

    `one` is the runner's own method for a size. Raises Exception, as SGLang does, where memory runs out.
    """
    wanted = sorted(sizes, reverse=True)
    held: Held = []

    def forward() -> Held:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            if not held:
                phases.enter(phase)
            return phases.hold(torch_bytes * size // sum(wanted), "graphs")

    try:
        for size in wanted:
            held += one(size, forward)
        phases.charge(outside_bytes, "graphs")
    except RuntimeError as error:
        raise Exception(f"Capture cuda graph failed: {error}\n{FAILED}") from error
    return held


def free_gib() -> float:
    """Return what SGLang shows in its progress bar, without emptying the cache."""
    return torch.cuda.mem_get_info(cuda().current)[0] / (1 << 30)
