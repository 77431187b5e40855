"""Which CUDA graphs are captured, per phase of the forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field


class Phase:
    DECODE = "decode"
    PREFILL = "prefill"
    ALL = (DECODE, PREFILL)


class Backend:
    FULL = "full"
    BREAKABLE = "breakable"
    TC_PIECEWISE = "tc_piecewise"
    DISABLED = "disabled"
    ALL = (FULL, BREAKABLE, TC_PIECEWISE, DISABLED)


@dataclass
class PhaseConfig:
    """`bs`: batch sizes of the decode phase, token counts of the prefill phase."""

    backend: str = Backend.DISABLED
    max_bs: int | None = None
    bs: list[int] | None = None
    tc_compiler: str = "eager"


@dataclass
class CudaGraphConfig:
    decode: PhaseConfig = field(default_factory=lambda: PhaseConfig(backend=Backend.FULL))
    prefill: PhaseConfig = field(default_factory=lambda: PhaseConfig(backend=Backend.TC_PIECEWISE))


def check_cuda_graph_backend(phase: str, backend: str) -> bool:
    """Return whether `phase` captures with `backend`."""
    from sglang.srt.server_args import get_global_server_args

    config = get_global_server_args().cuda_graph_config
    return config is not None and bool(getattr(config, phase).backend == backend)
