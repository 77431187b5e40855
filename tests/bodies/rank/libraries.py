"""The compiled halves of what SGLang's classes call: each takes what the real one takes, from the FakeGpu."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from sglang_probe.testing.core.allocator import round_up
from sglang_probe.testing.core.cuda import cuda
from tests.bodies.rank import device as gpu
from tests.bodies.rank.loading import Thing

MIB = 1 << 20
META_SIZE = 36 * 8 * 8 * 4 * 2
"""What the kernels' synchronisation block comes to: any odd number does."""
NCCL_BYTES = 306 * MIB
QUICK_FLAGS = 304 * 4 * 4 * 2
QUICK_LARGEST = 1 << 28
"""The real library's default is 2 GiB; a quarter keeps the cards small."""


class Ops:
    """Custom all-reduce's kernels, of sgl_kernel or of vllm, and quick reduce's."""

    IS_CUSTOM_AR_AVAILABLE = IS_QUICK_AR_AVAILABLE = True
    IS_MSCCLPP_AR_AVAILABLE = True

    def __init__(self, *, vllm: bool = True) -> None:
        self.use_vllm_custom_allreduce = vllm

    def meta_size(self) -> int:
        return META_SIZE

    def allocate_meta_buffer(self, size: int) -> Any:
        return gpu.outside_tensor("hipExtMalloc", (size,), torch.uint8, cuda().current)

    def get_meta_buffer_ipc_handle(self, _: Any) -> Any:
        return torch.zeros(64, dtype=torch.uint8).numpy()

    def init_custom_ar(self, *_: Any) -> int:
        return 1

    def init_custom_qr(self, rank: int, world_size: int, largest: int | None = None) -> int:
        data = 2 * (largest or QUICK_LARGEST)
        self._quick = gpu.raw("hipExtMalloc", data + world_size * QUICK_FLAGS)
        return 1

    def qr_max_size(self) -> int:
        return QUICK_LARGEST

    def qr_get_handle(self, _: int) -> bytes:
        return bytes(64)

    def mscclpp_generate_unique_id(self) -> Any:
        return torch.zeros(128)

    def mscclpp_init_context(self, *_: Any) -> int:
        return 1

    def nothing(self, *_: Any, **__: Any) -> None:
        return None

    register_buffer = register_graph_buffers = dispose = qr_open_handles = qr_destroy = mscclpp_allreduce = nothing


class Nccl:
    """libnccl: a communicator costs what a real one might."""

    def __init__(self, *_: Any) -> None:
        pass

    def ncclGetVersion(self) -> str:  # noqa: N802  # NCCL's names
        return "2.27.3"

    def ncclGetRawVersion(self) -> int:  # noqa: N802
        return 22703

    def ncclGetUniqueId(self) -> Any:  # noqa: N802
        return SimpleNamespace(internal=(ctypes.c_byte * 128)())

    def ncclCommInitRank(self, *_: Any) -> int:  # noqa: N802
        return gpu.raw("nccl", NCCL_BYTES, exact=True)

    def ncclCommInitRankConfig(self, *words: Any) -> int:  # noqa: N802
        return self.ncclCommInitRank(*words)

    def __getattr__(self, name: str) -> Any:
        return Thing(name)


def storage_bytes(
    header: str, world_size: int, pull_blocks: int, push_blocks: int, pull: int, push: int, graphs: int
) -> int:
    """Return what the C++ object of CustomAllReduceV2 allocates; 0.5.11's header lays it out in another way."""
    pointers = 8 * 8 * (1 + graphs)
    if "_align_bytes" in header:
        return (
            sum(round_up(part, 128) for part in (128 * pull_blocks, 4 * push_blocks, pointers, 2 * world_size * push))
            + pull
        )
    return 128 * pull_blocks + 128 * push_blocks + pointers + pull + 2 * world_size * push


def tvm_ffi(package: Path) -> dict[str, Any]:
    """Return what `tvm_ffi` must hold for the JIT object of a release: its base class, with the C++ methods."""
    header = package / "jit_kernel" / "include" / "sgl_kernel" / "distributed" / "custom_all_reduce.cuh"
    layout = header.read_text() if header.exists() else ""

    class Object:
        __slots__ = ("_config", "_storage")

        def __ffi_init__(self, *given: Any) -> None:
            if len(given) != 7 or not all(isinstance(one, int) for one in given):
                return  # from 0.5.16 on it only points at memory that Python has allocated
            _, world, pull_blocks, push_blocks, *sizes = given
            self._storage = gpu.raw("cudaMalloc", storage_bytes(layout, world, pull_blocks, push_blocks, *sizes))
            self._config = (pull_blocks, 256)

        def configure_pull(self, *config: int) -> tuple[int, int]:
            before, self._config = self._config, config  # type: ignore[assignment]
            return before

        def share_storage(self) -> list[int]:
            return [0] * 64

        def post_init(self, _: Any) -> None:
            pass

        def free_ipc_handles(self) -> None:
            pass

        def free_storage(self) -> None:
            if self._storage:
                cuda().free_raw(self._storage)
            self._storage = 0

        def nothing(self, *_: Any) -> None:
            pass

        set_pull_multicast_blocks = set_cuda_graph_capture = nothing

    return {"Object": Object, "register_object": lambda name: lambda cls: cls, "Module": Any}


JIT = {
    "cache_once": functools.cache,
    "load_jit": lambda *_, **__: Thing("jit"),
    "is_arch_support_pdl": lambda: True,
    "make_cpp_args": lambda *_: "",
}
"""What `sglang.jit_kernel.utils` must hold."""
