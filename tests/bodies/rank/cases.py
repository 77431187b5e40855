"""The cases: each builds one real class of the release that is loaded, and returns what it saw of it."""

from __future__ import annotations

import contextlib
import inspect
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sglang_probe.testing.core.cuda import cuda
from tests.bodies.rank import device as gpu
from tests.bodies.rank import fusion, libraries
from tests.bodies.rank import mscclpp as mscclpp_library
from tests.bodies.rank import symmetric as symmetric_memory
from tests.bodies.rank.loading import Thing, load, patch, provide

COMMUNICATORS = "sglang.srt.distributed.device_communicators"
MIB = 1 << 20


def _here() -> Any:
    return torch.device("cuda", cuda().current)


def _first_family(*, vllm: bool = True) -> Any:
    os.environ["SGLANG_SKIP_P2P_CHECK"] = "1"
    module = load(f"{COMMUNICATORS}.custom_all_reduce")
    # `custom_ar` is what older releases find out from the library itself, when they are imported.
    patch(module, ops=libraries.Ops(vllm=vllm), CudaRTLibrary=gpu.Runtime, custom_ar=True)
    return module


def custom_allreduce(package: Path, *, vllm: bool = True, max_size: int | None = None, broken: bool = False) -> Any:
    """CustomAllreduce; `broken` leaves its kernels out."""
    module = _first_family(vllm=vllm)
    if broken:
        patch(module, custom_ar=False)
        module.ops.IS_CUSTOM_AR_AVAILABLE = False
    words = {} if max_size is None else {"max_size": max_size}
    return module.CustomAllreduce(dist.group.WORLD, _here(), **words)


def other_node(package: Path, name: str = "custom_all_reduce", cls: str = "CustomAllreduce") -> Any:
    """A class whose group spans nodes: it disables itself, and says so in a log line only."""
    _first_family() if name == "custom_all_reduce" else _second_family(package)
    module = load(f"{COMMUNICATORS}.{name}")
    utils = load(f"{COMMUNICATORS}.custom_all_reduce_utils")
    for holder in (module, utils):
        if hasattr(holder, "in_the_same_node_as"):
            patch(holder, in_the_same_node_as=lambda *_, **__: [True, False])
    return getattr(module, cls)(dist.group.WORLD, _here())


def _second_family(package: Path) -> Any:
    os.environ["SGLANG_SKIP_P2P_CHECK"] = "1"
    provide("tvm_ffi", **libraries.tvm_ffi(package))
    provide("sglang.jit_kernel.utils", **libraries.JIT)
    module = load(f"{COMMUNICATORS}.custom_all_reduce_v2")
    if hasattr(module, "is_sm100_supported"):
        patch(module, is_sm100_supported=lambda *_: False)
    return module


def second_family(package: Path, *, grow_to: int = 0, **sizes: int) -> Any:
    """CustomAllReduceV2; `grow_to` asks for more push capacity after."""
    built = _second_family(package).CustomAllReduceV2(dist.group.WORLD, _here(), **sizes)
    if grow_to:
        built.reserve_push_capacity(grow_to)
    return built


def quick(package: Path, *, regime: str = "INT8", megabytes: int = 0) -> Any:
    """QuickAllReduce, on ROCm."""
    os.environ["ROCM_QUICK_REDUCE_QUANTIZATION"] = regime
    os.environ["ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB"] = str(megabytes)
    module = load(f"{COMMUNICATORS}.quick_all_reduce")
    patch(module, ops=libraries.Ops(), quick_ar=True)
    return module.QuickAllReduce(dist.group.WORLD, _here())


def symmetric(package: Path, *, multicast: bool = True) -> Any:
    """SymmMemCommunicator, called TorchSymmMemCommunicator since."""
    symmetric_memory.multicast = multicast
    for name, cls in (("torch_symm_mem", "TorchSymmMemCommunicator"), ("symm_mem", "SymmMemCommunicator")):
        if (package / "srt" / "distributed" / "device_communicators" / f"{name}.py").exists():
            module = load(f"{COMMUNICATORS}.{name}")
            return getattr(module, cls)(dist.group.WORLD, _here())
    raise ImportError("this release has neither")


def pynccl(package: Path) -> Any:
    """PyNcclCommunicator."""
    module = load(f"{COMMUNICATORS}.pynccl")
    patch(module, NCCLLibrary=libraries.Nccl)
    return module.PyNcclCommunicator(dist.group.WORLD, _here())


def mscclpp(package: Path, *, max_bytes: int = MIB) -> Any:
    """PyMscclppCommunicator. It wants eight ranks: a world of torch's fake backend has them. Tuning is left out."""
    provide("mscclpp", **mscclpp_library.MSCCLPP)
    provide("mscclpp.ext", AlgorithmCollectionBuilder=mscclpp_library.Algorithms)
    provide("mscclpp.default_algos")
    patch(torch.utils.dlpack, from_dlpack=lambda tensor: tensor)
    module = load(f"{COMMUNICATORS}.pymscclpp")
    cls = module.PyMscclppCommunicator
    if hasattr(module, "ops"):
        patch(module, ops=libraries.Ops(), mscclpp_is_available=True)
        patch(cls, pre_tune_config=lambda self: None)
        return cls(dist.group.WORLD, _here(), max_bytes=max_bytes)
    if hasattr(module, "_TUNING_MESSAGE_SIZES"):
        patch(cls, _tune=lambda self, algorithms: self._best_configs["allreduce"].update({MIB: algorithms[0]}))
    return cls(dist.group.WORLD, _here())


def fused(package: Path, *, tokens: int = 2048, hidden: int = 4096) -> Any:
    """FlashInferWorkspaceManager.initialize"""
    provide("flashinfer")
    provide(
        "flashinfer.comm",
        trtllm_create_ipc_workspace_for_all_reduce_fusion=fusion.create_fused_old,
        create_allreduce_fusion_workspace=fusion.create_fused,
        allreduce_fusion=Thing("allreduce_fusion"),
    )
    provide("flashinfer.comm.mnnvl", TorchDistBackend=fusion.Backend)
    module = load("sglang.srt.layers.flashinfer_comm_fusion")
    if hasattr(module, "get_cuda_driver_bindings"):
        patch(module, get_cuda_driver_bindings=fusion.Driver)
    manager = module.FlashInferWorkspaceManager()
    offered = {
        "world_size": dist.get_world_size(),
        "rank": dist.get_rank(),
        "max_token_num": tokens,
        "hidden_dim": hidden,
        "dtype": torch.bfloat16,
        "device_group": dist.group.WORLD,
        "cpu_group": dist.group.WORLD,
        "backend": "trtllm",
    }
    taken = inspect.signature(manager.initialize).parameters
    manager.initialize(**{name: value for name, value in offered.items() if name in taken})
    return manager


def pcie(package: Path, *, hidden: int = 4096, rows: int = 64) -> Any:
    """PcieIpcCommunicator, and the one call that builds its workspace."""
    provide("flashinfer")
    provide("flashinfer.comm", PcieIpcAllReduceWorkspace=fusion.PcieIpc)
    module = load(f"{COMMUNICATORS}.pcie_ipc_ar")
    built = module.PcieIpcCommunicator(dist.group.WORLD, _here(), dist.group.WORLD)
    built.prepare(hidden=hidden, max_rows=rows)
    return built


def multimem(package: Path, *, tokens: int = 1024, hidden: int = 8192) -> Any:
    """The buffer of MultimemAllGatherer."""
    module = load(f"{COMMUNICATORS}.triton_symm_mem_ag")
    return module.create_state(dist.group.WORLD, dist.get_rank(), tokens, hidden)


def coordinator(package: Path, *, wants: tuple[str, ...] = ("pynccl", "custom_allreduce", "symm_mem")) -> Any:
    """GroupCoordinator, which builds the communicators itself."""
    _first_family()
    if (package / "srt" / "distributed" / "device_communicators" / "custom_all_reduce_v2.py").exists():
        _second_family(package)
    patch(load(f"{COMMUNICATORS}.pynccl"), NCCLLibrary=libraries.Nccl)
    module = load("sglang.srt.distributed.parallel_state")
    names = inspect.signature(module.GroupCoordinator).parameters
    words = {name: any(want in name for want in wants) for name in names if name.startswith("use_")}
    ranks = [list(range(dist.get_world_size()))]
    return module.GroupCoordinator(
        group_ranks=ranks, local_rank=cuda().current, torch_distributed_backend="gloo", group_name="tp", **words
    )


def rocm_coordinator(package: Path) -> Any:
    """GroupCoordinator on ROCm, with SGLang's own custom all-reduce (not aiter's) and quick all-reduce."""
    os.environ["SGLANG_USE_AITER_AR"] = "false"
    os.environ["ROCM_QUICK_REDUCE_QUANTIZATION"] = "INT8"
    os.environ["ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB"] = "64"
    patch(load(f"{COMMUNICATORS}.quick_all_reduce"), ops=libraries.Ops(), quick_ar=True)
    return coordinator(package, wants=("pynccl", "custom_allreduce"))


def graphs(package: Path, **words: Any) -> Any:
    """The graph entries."""
    from tests.bodies.rank import graph_entries

    return graph_entries.run(package, **words)


def draft_graphs(package: Path, **words: Any) -> Any:
    """The graph entry of a draft worker."""
    from tests.bodies.rank import graph_entries

    return graph_entries.run_draft(package, **words)


def nccl_pool(package: Path, *, enabled: bool = True) -> Any:
    """The pool that NCCL's symmetric memory is taken from, allocated ahead of time; the pool itself is torch's."""
    os.environ["SGLANG_SYMM_MEM_PREALLOC_GB_SIZE"] = "1"
    load("sglang.srt.environ")
    module = load(f"{COMMUNICATORS}.pynccl_allocator")
    if not hasattr(module, "prealloc_symmetric_memory_pool"):
        from tests.bodies.rank import graph_entries

        return graph_entries.run_pool(package, enabled)
    patch(module, use_symmetric_memory=lambda _: contextlib.nullcontext())
    for holder in (module, load("sglang.srt.distributed"), load("sglang.srt.distributed.parallel_state")):
        patch(holder, get_tp_group=lambda: None)
    module.prealloc_symmetric_memory_pool(
        is_draft_worker=False, enable_symm_mem=enabled, device=str(_here()), forward_stream=None
    )
    return module
