"""flashinfer's communication, and the driver that SGLang asks before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from sglang_probe.testing.core.allocator import round_up
from sglang_probe.testing.core.cuda import cuda
from tests.bodies.rank import device as gpu
from tests.bodies.rank.loading import Thing

MIB = 1 << 20


def fused_sizes(world_size: int, max_token_num: int, hidden_dim: int, element: int) -> dict[str, int]:
    """Return flashinfer's three buffers before it rounds them."""
    payload = world_size * max_token_num * hidden_dim
    return {"buffer_size": payload * 2, "flag_size": world_size * 256 * 4, "lamport_buffer_size": 3 * payload * element}


class FusedWorkspace:
    """flashinfer's workspace of the fused all-reduce, backend trtllm."""

    backend = "trtllm"

    def __init__(self, world_size: int, max_token_num: int, hidden_dim: int, dtype: Any) -> None:
        sizes = fused_sizes(world_size, max_token_num, hidden_dim, 4 if dtype == torch.float32 else 2)
        self.metadata = {**sizes, "use_fp32_lamport": dtype == torch.float32}
        self.mem_handles = [object() for _ in sizes]
        self._held = [
            gpu.raw("symmetric", round_up(round_up(size, 2 * MIB) + 2048, 2 * MIB)) for size in sizes.values()
        ]

    def is_buffer_size_sufficient(
        self, tp_size: int, num_tokens: int, hidden_dim: int, dtype: Any, use_oneshot: Any = None
    ) -> bool:
        return False

    def destroy(self) -> None:
        while self._held:
            cuda().free_raw(self._held.pop())


def create_fused(**words: Any) -> FusedWorkspace:
    """flashinfer.comm.create_allreduce_fusion_workspace"""
    return FusedWorkspace(words["world_size"], words["max_token_num"], words["hidden_dim"], words["dtype"])


def create_fused_old(
    rank: int, world_size: int, max_token_num: int, hidden_dim: int, group: Any = None, use_fp32_lamport: bool = False
) -> tuple[Any, Any]:
    """flashinfer.comm.trtllm_create_ipc_workspace_for_all_reduce_fusion"""
    sizes = fused_sizes(world_size, max_token_num, hidden_dim, 4 if use_fp32_lamport else 2)
    handles = [[gpu.raw("cudaMalloc", round_up(size, 2 * MIB))] for size in sizes.values()]
    return handles, torch.tensor([handle[0] for handle in handles], device=torch.device("cuda", cuda().current))


class Backend:
    """flashinfer.comm.mnnvl.TorchDistBackend"""

    def __init__(self, group: Any = None) -> None:
        self.group = group


class Driver:
    """cuda.bindings.driver, as far as the preflight of the fused workspace asks it."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)

    def cuMemGetAllocationGranularity(self, *_: Any) -> tuple[int, int]:  # noqa: N802  # CUDA's names
        return 0, 2 * MIB

    def cuMulticastGetGranularity(self, *_: Any) -> tuple[int, int]:  # noqa: N802
        return 0, 2 * MIB

    def cuMemCreate(self, size: int, *_: Any) -> tuple[int, int]:  # noqa: N802
        return 0, gpu.raw("cuMemCreate", size)

    def cuMemRelease(self, handle: int) -> None:  # noqa: N802
        cuda().free_raw(handle)

    def __getattr__(self, name: str) -> Any:
        return Thing(name)


class PcieIpc:
    """flashinfer.comm.PcieIpcAllReduceWorkspace: one slab, payload and flags."""

    def __init__(self, *, max_numel: int, **_: Any) -> None:
        self.max_numel = max_numel
        self._slab = gpu.raw("cudaMalloc", 2 * max_numel + 4096)

    def tune(self, *_: Any, **__: Any) -> list[int]:
        return [1]
