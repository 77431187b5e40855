"""The classes and functions of this room, and the first release of every body that each has had.

`test_census.py` reads every wheel and fails where a body is not here: a new release that changes one adds its number.
"""

from __future__ import annotations

from dataclasses import dataclass

_COMMUNICATORS = "sglang.srt.distributed.device_communicators"
_RUNNER = "sglang.srt.model_executor.model_runner"
_SETUP = "sglang.srt.model_executor.model_runner_components.cuda_graph_setup"


@dataclass(frozen=True)
class Family:
    """`path` of `module` in the releases that brought a new body; `also` are releases that many people run."""

    module: str
    path: str
    releases: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every release that runs here."""
        return (*self.releases, *self.also)

    def since(self, first: str) -> tuple[str, ...]:
        """The releases from `first` (one of them) on."""
        return self.releases[self.releases.index(first) :]


FIRST = Family(
    f"{_COMMUNICATORS}.custom_all_reduce",
    "CustomAllreduce",
    (
        "0.4.3",
        "0.4.3.post3",
        "0.4.4",
        "0.4.4.post4",
        "0.4.6.post3",
        "0.5.1",
        "0.5.3.post2",
        "0.5.3.post3",
        "0.5.4.post2",
        "0.5.6",
        "0.5.6.post1",
        "0.5.7",
        "0.5.9",
        "0.5.10",
        "0.5.14",
        "0.5.23",
    ),
    ("0.4.6", "0.4.9", "0.5.2", "0.5.3", "0.5.10.post1", "0.5.12.post1", "0.5.16", "0.5.18", "0.5.20"),
)
SECOND = Family(
    f"{_COMMUNICATORS}.custom_all_reduce_v2",
    "CustomAllReduceV2",
    ("0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.19", "0.5.20", "0.5.23"),
    ("0.5.10.post1", "0.5.12.post1", "0.5.18"),
)
QUICK = Family(f"{_COMMUNICATORS}.quick_all_reduce", "QuickAllReduce", ("0.4.9.post4", "0.5.6.post1", "0.5.20"))
SYMM_MEM = Family(f"{_COMMUNICATORS}.symm_mem", "SymmMemCommunicator", ("0.5.3",))
TORCH_SYMM_MEM = Family(
    f"{_COMMUNICATORS}.torch_symm_mem", "TorchSymmMemCommunicator", ("0.5.4.post3", "0.5.14", "0.5.16", "0.5.17")
)
MSCCLPP = Family(
    f"{_COMMUNICATORS}.pymscclpp",
    "PyMscclppCommunicator",
    ("0.4.7", "0.5.6.post1", "0.5.14", "0.5.16", "0.5.17", "0.5.20", "0.5.21"),
)
PYNCCL = Family(
    f"{_COMMUNICATORS}.pynccl",
    "PyNcclCommunicator",
    (
        "0.4.3",
        "0.4.6.post3",
        "0.4.10.post2",
        "0.5.1",
        "0.5.4",
        "0.5.4.post3",
        "0.5.6",
        "0.5.9",
        "0.5.10",
        "0.5.16",
        "0.5.17",
        "0.5.20",
        "0.5.23",
    ),
)
FUSED = Family(
    "sglang.srt.layers.flashinfer_comm_fusion",
    "FlashInferWorkspaceManager",
    ("0.4.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.17", "0.5.18", "0.5.23"),
)
PCIE = Family(f"{_COMMUNICATORS}.pcie_ipc_ar", "PcieIpcCommunicator", ("0.5.21",))
MULTIMEM = Family(f"{_COMMUNICATORS}.triton_symm_mem_ag", "create_state", ("0.5.15",))
COORDINATOR = Family(
    "sglang.srt.distributed.parallel_state",
    "GroupCoordinator.__init__",
    (
        "0.4.3",
        "0.4.4.post2",
        "0.4.4.post3",
        "0.4.6.post3",
        "0.4.7",
        "0.4.9",
        "0.4.9.post4",
        "0.5.1",
        "0.5.2",
        "0.5.3",
        "0.5.3.post2",
        "0.5.4",
        "0.5.4.post1",
        "0.5.4.post3",
        "0.5.5.post3",
        "0.5.7",
        "0.5.8",
        "0.5.9",
        "0.5.10",
        "0.5.11",
        "0.5.13",
        "0.5.16",
        "0.5.17",
        "0.5.18",
        "0.5.20",
        "0.5.21",
        "0.5.23",
    ),
)
GRAPHS = Family(
    _RUNNER,
    "ModelRunner.init_cuda_graphs",
    (
        "0.4.3",
        "0.4.3.post3",
        "0.4.5.post1",
        "0.4.6.post1",
        "0.4.6.post5",
        "0.4.9",
        "0.5.14",
        "0.5.15",
        "0.5.16",
        "0.5.17",
        "0.5.20",
        "0.5.21",
        "0.5.22",
        "0.5.23",
    ),
)
DEVICE_GRAPHS = Family(_RUNNER, "ModelRunner.init_device_graphs", ("0.5.1", "0.5.2", "0.5.6", "0.5.9", "0.5.11"))
PIECEWISE = Family(
    _RUNNER,
    "ModelRunner.init_piecewise_cuda_graphs",
    ("0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13"),
)
DECODE_METHOD = Family(
    _RUNNER, "ModelRunner.init_decode_cuda_graph", ("0.5.14", "0.5.15", "0.5.16", "0.5.17", "0.5.21")
)
PREFILL_METHOD = Family(_RUNNER, "ModelRunner.init_prefill_cuda_graph", ("0.5.14", "0.5.16", "0.5.17"))
DECODE_SETUP = Family(_SETUP, "capture_decode_graph", ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.22"))
PREFILL_SETUP = Family(_SETUP, "capture_prefill_graph", ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.23"))

POOL_METHOD = Family(_RUNNER, "ModelRunner.prealloc_symmetric_memory_pool", ("0.5.9",))
POOL = Family(f"{_COMMUNICATORS}.pynccl_allocator", "prealloc_symmetric_memory_pool", ("0.5.16", "0.5.21"))
EAGLE = Family(
    "sglang.srt.speculative.eagle_worker",
    "EAGLEWorker.init_cuda_graphs",
    (
        "0.4.3",
        "0.4.3.post3",
        "0.4.4.post2",
        "0.4.6.post5",
        "0.4.7",
        "0.4.7.post1",
        "0.5.3.post2",
        "0.5.4.post2",
        "0.5.5.post3",
        "0.5.11",
        "0.5.12",
    ),
)
EAGLE_V2 = Family(
    "sglang.srt.speculative.eagle_worker_v2",
    "EagleDraftWorker.init_cuda_graphs",
    (
        "0.5.4",
        "0.5.4.post2",
        "0.5.5.post3",
        "0.5.8",
        "0.5.10",
        "0.5.11",
        "0.5.12",
        "0.5.13",
        "0.5.14",
        "0.5.15",
        "0.5.21",
        "0.5.22",
        "0.5.23",
    ),
)

FAMILIES = (
    POOL_METHOD,
    POOL,
    EAGLE,
    EAGLE_V2,
    FIRST,
    SECOND,
    QUICK,
    SYMM_MEM,
    TORCH_SYMM_MEM,
    MSCCLPP,
    PYNCCL,
    FUSED,
    PCIE,
    MULTIMEM,
    COORDINATOR,
    GRAPHS,
    DEVICE_GRAPHS,
    PIECEWISE,
    DECODE_METHOD,
    PREFILL_METHOD,
    DECODE_SETUP,
    PREFILL_SETUP,
)
