"""The table of targets: every home that a role has had in SGLang's releases, one row each.

Adding a home is adding a row. Homes are looked up, never chosen by a version: a row whose attribute is not in the
module that loaded is absent, and that is said. Multiprocessing entry points are never rows: a wrapt proxy on one makes
`Process.start` fail to pickle it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_probe.agent.calls import Reader
from sglang_probe.agent.readers import allreduce, attention, dist, graph, kv, pools, scheduler, weights
from sglang_probe.events.names import Role, Worker

Use = Literal["span", "sample", "observe"]


@dataclass(frozen=True, slots=True)
class Target:
    """One home of one role."""

    role: Role | None
    """None for a row that only observes a term or an identity and writes no memory event."""
    module: str
    path: str
    """`Class.function` as the class itself defines it, or `function`."""
    reader: Reader
    why: str
    """Why this home is hooked, and since or until when SGLang has it."""
    use: Use = "span"
    unless: str = ""
    """Another path of the module that, where it exists, calls this one: then this row is nested and not hooked."""
    root_only: bool = False
    """Only where no `scheduler.init` is open: direct use of a class that a scheduler normally builds."""
    in_collective: bool = False
    """Other ranks wait at its ends: no process list is read there."""
    worker: Worker | None = None
    """Set where the class itself tells; otherwise the instance or the enclosing call does."""

    @property
    def name(self) -> str:
        """`module:path`, as events and reports call it."""
        return f"{self.module}:{self.path}"


_RUNNER = "sglang.srt.model_executor.model_runner"
_KV_MIXIN = "sglang.srt.model_executor.model_runner_kv_cache_mixin"
_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_SCHEDULER = "sglang.srt.managers.scheduler"
_PARALLEL = "sglang.srt.distributed.parallel_state"
_COMMUNICATORS = "sglang.srt.distributed.device_communicators"
_POOL = "sglang.srt.mem_cache.memory_pool"
_SWA_POOL = "sglang.srt.mem_cache.swa_memory_pool"
_V4_POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool"
_DECODE = "sglang.srt.disaggregation.decode"
_SPECULATIVE = "sglang.srt.speculative"

# fmt: off
TARGETS: tuple[Target, ...] = (
    # scheduler.init
    Target("scheduler.init", _SCHEDULER, "Scheduler.__init__", scheduler.ROOT,
           "The root of a rank in every release; ready is made of its end."),
    Target("scheduler.init", _RUNNER, "ModelRunner.__init__", scheduler.ROOT,
           "The root where no scheduler is built: bench_one_batch, direct use.", root_only=True),
    # dist.init
    Target("dist.init", _RUNNER, "ModelRunner.init_torch_distributed", dist.INIT,
           "Returns the pre-load memory in GiB up to 0.5.15.", in_collective=True),
    # dist.communicator
    Target("dist.communicator", _PARALLEL, "init_distributed_environment", dist.WORLD,
           "The world's process group; SGLang has made the CUDA context just before.", in_collective=True),
    Target("dist.communicator", _PARALLEL, "GroupCoordinator.__init__", dist.COORDINATOR,
           "Names the group whose communicators are built inside.", in_collective=True),
    Target("dist.communicator", f"{_COMMUNICATORS}.pynccl", "PyNcclCommunicator.__init__", dist.MEMBER,
           "NCCL's own buffers, most of what the distributed init costs.", in_collective=True),
    Target("dist.communicator", f"{_COMMUNICATORS}.pymscclpp", "PyMscclppCommunicator.__init__", dist.MEMBER,
           "Only with --enable-mscclpp.", in_collective=True),
    Target("dist.communicator", f"{_COMMUNICATORS}.torch_symm_mem", "TorchSymmMemCommunicator.__init__", dist.MEMBER,
           "Only with --enable-torch-symm-mem: 64 or 128 MiB.", in_collective=True),
    # allreduce.buffers
    Target("allreduce.buffers", f"{_COMMUNICATORS}.custom_all_reduce", "CustomAllreduce.__init__",
           allreduce.FIRST_FAMILY, "The first family; the default on NVLink until 0.5.11.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.custom_all_reduce", "CustomAllreduce.create_shared_buffer",
           allreduce.SHARED_BUFFER, "Its cudaMalloc, which torch does not see.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.custom_all_reduce_v2", "CustomAllReduceV2.__init__",
           allreduce.SECOND_FAMILY, "The second family, default from 0.5.12; never calls create_shared_buffer.",
           in_collective=True),
    # weights.load
    Target("weights.load", _RUNNER, "ModelRunner.load_model", weights.LOAD, "Target and draft, in every release."),
    # kv.profile
    Target("kv.profile", _KV_MIXIN, "ModelRunnerKVCacheMixin.profile_max_num_token", kv.PROFILE_TOKENS,
           "The budget in tokens, 0.5.7 to 0.5.10."),
    Target("kv.profile", _KV_MIXIN, "ModelRunnerKVCacheMixin._profile_available_bytes", kv.PROFILE_BYTES,
           "The budget in bytes, 0.5.11 to 0.5.15; raises from 0.5.14 when nothing is left."),
    Target(None, _KV_MIXIN, "get_available_gpu_memory", kv.AVAILABLE,
           "The term `available`: observed where the budget function looks it up, never called by us.", "observe"),
    Target(None, _KV_MIXIN, "ModelRunnerKVCacheMixin.get_cell_size_per_token", kv.CELL_SIZE,
           "The term bytes per token, 0.5.7 to 0.5.10.", "observe"),
    Target(None, _KV_MIXIN, "ModelRunnerKVCacheMixin.handle_max_mamba_cache", kv.MAMBA,
           "The mamba deduction: what goes in less what comes out.", "observe"),
    Target(None, _CONFIGURATOR, "create_memory_pool_configurator", kv.CONFIGURATOR,
           "Bytes per token from 0.5.11 on; always imported inside a function.", "observe"),
    # kv.pool
    Target("kv.pool", _KV_MIXIN, "ModelRunnerKVCacheMixin.init_memory_pool", pools.ALL,
           "All pools of a worker, the profile included, 0.5.7 to 0.5.15."),
    Target("kv.pool", _POOL, "KVCache._finalize_allocation_log", pools.SIZED,
           "Every concrete KV pool says its size once it is built, from 0.5.2 on.", "sample"),
    Target("kv.pool", _POOL, "NoOpMHATokenToKVPool._finalize_allocation_log", pools.UNSIZED,
           "Overrides the line above and holds no cache, from 0.5.12 on.", "sample"),
    Target("kv.pool", _SWA_POOL, "SWAKVPool.__init__", pools.SIZED,
           "Holds two MHA pools, one for the window layers and one for the full ones."),
    Target("kv.pool", _POOL, "HybridLinearKVPool.__init__", pools.UNSIZED,
           "Holds an attention pool beside a mamba pool; its parts report themselves."),
    Target("kv.pool", _V4_POOL, "DeepSeekV4TokenToKVPool.__init__", pools.UNSIZED,
           "Does not report its size through the allocation log."),
    Target("kv.pool", _POOL, "MambaPool.__init__", pools.MAMBA, "State of the mamba layers."),
    Target("kv.pool", _POOL, "ReqToTokenPool.__init__", pools.REQUEST,
           "The request pool; a subclass of it calls it for its own."),
    Target("kv.pool", _DECODE, "DecodeReqToTokenPool.__init__", pools.REQUEST,
           "The request pool of a decode server; does not call its base."),
    # attention.init
    Target("attention.init", _RUNNER, "ModelRunner.init_attention_backends", attention.INIT,
           "Also makes the cuBLAS workspace, from 0.5.14 on."),
    Target("attention.init", _RUNNER, "ModelRunner.init_attention_backend", attention.INIT,
           "The backend alone, up to 0.5.15.", unless="ModelRunner.init_attention_backends"),
    # graph.capture
    Target("graph.capture", _RUNNER, "ModelRunner.init_cuda_graphs", graph.ALL,
           "Eager buffers, prefill and decode graphs, from 0.5.14 on."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_decode_cuda_graph", graph.DECODE, "From 0.5.14 on."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_prefill_cuda_graph", graph.PREFILL, "From 0.5.14 on."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_device_graphs", graph.DECODE, "0.5.2 to 0.5.13."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_piecewise_cuda_graphs", graph.PREFILL, "0.5.6 to 0.5.13."),
    Target("graph.capture", f"{_SPECULATIVE}.eagle_worker", "EAGLEWorker.init_cuda_graphs", graph.DRAFT,
           "The draft's own graphs, up to 0.5.12.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.multi_layer_eagle_worker", "MultiLayerEagleWorker.init_cuda_graphs",
           graph.DRAFT, "0.5.7 to 0.5.12.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.eagle_worker_v2", "EagleDraftWorker.init_cuda_graphs", graph.DRAFT,
           "From 0.5.4 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.multi_layer_eagle_worker_v2",
           "MultiLayerEagleDraftWorker.init_cuda_graphs", graph.DRAFT, "From 0.5.7 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.frozen_kv_mtp_worker_v2", "FrozenKVMTPDraftWorker.init_cuda_graphs",
           graph.DRAFT, "From 0.5.14 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.standalone_worker_v2", "StandaloneDraftWorker.init_cuda_graphs",
           graph.DRAFT, "Overrides EagleDraftWorker's, from 0.5.14 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.dflash_worker_v2", "DFlashWorkerV2.init_cuda_graphs", graph.DRAFT,
           "From 0.5.14 on.", worker="draft"),
    # identity
    Target(None, "sglang.srt.managers.detokenizer_manager", "DetokenizerManager.__init__", scheduler.PROCESS_ROLE,
           "This process is the detokenizer.", "observe"),
    Target(None, "sglang.srt.managers.data_parallel_controller", "DataParallelController.__init__",
           scheduler.PROCESS_ROLE, "This process is the data-parallel controller.", "observe"),
    Target(None, "sglang.srt.managers.tokenizer_manager", "TokenizerManager.__init__", scheduler.PROCESS_ROLE,
           "This process is a tokenizer worker, unless it is the launcher.", "observe"),
)
# fmt: on

MODULES: frozenset[str] = frozenset(target.module for target in TARGETS)


def targets_of(module: str) -> list[Target]:
    """Return the rows of one module, in the order of the table."""
    return [target for target in TARGETS if target.module == module]
