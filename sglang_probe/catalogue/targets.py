"""The table of targets: every home that a role has had in SGLang's releases, one row each.

Adding a home is adding a row. Homes are looked up, never chosen by a version: a row whose attribute is not in the
module that loaded is absent, and that is said. Multiprocessing entry points are never rows: a wrapt proxy on one makes
`Process.start` fail to pickle it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    reader: str
    """`module.NAME` of the reader in `sglang_probe.agent.readers`: by name, so that reading the table imports none."""
    why: str
    """Why this home is hooked, and since or until when SGLang has it."""
    use: Use = "span"
    unless: str = ""
    """Another home that, where it exists, is hooked instead, so that this row is nested: a path of the same module, or
    `module:path` of one that this module imports."""
    outermost: bool = False
    """Only where no span of the same role is open: a home that others of its role call in some releases."""
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
_KV_CONFIGURATOR = "sglang.srt.mem_cache.kv_cache_configurator"
_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_GRAPH_SETUP = "sglang.srt.model_executor.model_runner_components.cuda_graph_setup"
_PIECEWISE = "sglang.srt.model_executor.piecewise_cuda_graph_runner"
_SCHEDULER = "sglang.srt.managers.scheduler"
_BOOTSTRAP = "sglang.srt.distributed.bootstrap"
_PARALLEL = "sglang.srt.distributed.parallel_state"
_COMMUNICATORS = "sglang.srt.distributed.device_communicators"
_FIRST_FAMILY = f"{_COMMUNICATORS}.custom_all_reduce"
_SECOND_FAMILY = f"{_COMMUNICATORS}.custom_all_reduce_v2"
_FUSION = "sglang.srt.layers.flashinfer_comm_fusion"
_LORA = "sglang.srt.lora.mem_pool"
_POOL = "sglang.srt.mem_cache.memory_pool"
_SWA_POOL = "sglang.srt.mem_cache.swa_memory_pool"
_V4_POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool"
_UNIFIED_POOL = "sglang.srt.mem_cache.unified_memory_pool"
_DECODE = "sglang.srt.disaggregation.decode"
_SPECULATIVE = "sglang.srt.speculative"

# fmt: off
TARGETS: tuple[Target, ...] = (
    # scheduler.init
    Target("scheduler.init", _SCHEDULER, "Scheduler.__init__", "scheduler.ROOT",
           "The root of a rank in every release; ready is made of its end."),
    Target("scheduler.init", _RUNNER, "ModelRunner.__init__", "scheduler.ROOT",
           "The root where no scheduler is built: bench_one_batch, direct use.", root_only=True),
    # dist.init
    Target("dist.init", _RUNNER, "ModelRunner.init_torch_distributed", "dist.INIT",
           "Every release. Returns the pre-load memory in GiB up to 0.5.15, then None and leaves it on the runner.",
           in_collective=True),
    Target("dist.init", _BOOTSTRAP, "init_parallel_runtime", "dist.RUNTIME",
           "From 0.5.21 on: builds the groups, before any runner exists; the method above then only measures.",
           in_collective=True),
    Target("dist.init", _BOOTSTRAP, "init_torch_distributed", "dist.INIT",
           "0.5.16 to 0.5.20: what the method calls; a span of its own only where something else calls it.",
           outermost=True, in_collective=True),
    Target("dist.init", _BOOTSTRAP, "measure_pre_model_load_memory", "dist.INIT",
           "From 0.5.21 on, likewise.", outermost=True, in_collective=True),
    # dist.communicator
    Target("dist.communicator", _PARALLEL, "init_distributed_environment", "dist.WORLD",
           "The world's process group; SGLang has made the CUDA context just before.", in_collective=True),
    Target("dist.communicator", _PARALLEL, "GroupCoordinator.__init__", "dist.COORDINATOR",
           "Names the group whose communicators are built inside.", in_collective=True),
    Target("dist.communicator", f"{_COMMUNICATORS}.pynccl", "PyNcclCommunicator.__init__", "dist.MEMBER",
           "NCCL's own buffers, most of what the distributed init costs.", in_collective=True),
    Target("dist.communicator", f"{_COMMUNICATORS}.pymscclpp", "PyMscclppCommunicator.__init__", "dist.MSCCLPP",
           "Only with --enable-mscclpp, from 0.4.7 on.", in_collective=True),
    # allreduce.buffers
    Target("allreduce.buffers", _FIRST_FAMILY, "CustomAllreduce.__init__", "allreduce.FIRST_FAMILY",
           "The first family; the default on NVLink until 0.5.11.", in_collective=True),
    Target("allreduce.buffers", _FIRST_FAMILY, "CustomAllreduce.create_shared_buffer", "allreduce.SHARED_BUFFER",
           "Its cudaMalloc, which torch does not see.", in_collective=True),
    Target("allreduce.buffers", _SECOND_FAMILY, "CustomAllReduceV2.__init__", "allreduce_v2.SECOND_FAMILY",
           "The second family, default from 0.5.12; never calls create_shared_buffer.", in_collective=True),
    Target("allreduce.buffers", _SECOND_FAMILY, "CustomAllReduceV2.reserve_push_capacity", "allreduce_v2.GROWN",
           "From 0.5.23 on: its memory may grow later.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.quick_all_reduce", "QuickAllReduce.__init__", "symmetric.QUICK",
           "ROCm only, from 0.4.9.post4 on: twice its largest message, 4 GiB a rank by default.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.symm_mem", "SymmMemCommunicator.__init__", "symmetric.SYMM_MEM",
           "--enable-symm-mem style all-reduce, 0.5.3 to 0.5.4.post2.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.torch_symm_mem", "TorchSymmMemCommunicator.__init__",
           "symmetric.SYMM_MEM", "Only with --enable-torch-symm-mem: 64 or 128 MiB, from 0.5.16 on 512.",
           in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.pcie_ipc_ar", "PcieIpcCommunicator.prepare", "symmetric.PCIE_IPC",
           "From 0.5.21 on, once before graphs; the constructor allocates nothing.", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.triton_symm_mem_ag", "create_state", "symmetric.MULTIMEM",
           "From 0.5.15 on: MultimemAllGatherer's buffer, tried at the first forward pass that needs it; a failure is"
           " caught and NCCL serves instead, so that it is no error.", "sample", in_collective=True),
    Target("allreduce.buffers", _FUSION, "FlashInferWorkspaceManager.initialize", "symmetric.FUSED",
           "The workspace of the fused all-reduce and norm, from 0.4.9 on.", in_collective=True),
    Target(None, _FUSION, "_flashinfer_trtllm_workspace_allocation_sizes", "symmetric.FUSED_SIZES",
           "The sizes that the fused workspace will take, from 0.5.11 on.", "observe"),
    Target("allreduce.buffers", _RUNNER, "ModelRunner.prealloc_symmetric_memory_pool", "symmetric.NCCL_POOL",
           "NCCL's symmetric memory pool, 4 GiB by default with --enable-symm-mem; called in every start and mostly in"
           " vain, so that a sample says enough; 0.5.9 to 0.5.15.", "sample", in_collective=True),
    Target("allreduce.buffers", f"{_COMMUNICATORS}.pynccl_allocator", "prealloc_symmetric_memory_pool",
           "symmetric.NCCL_POOL", "The same from 0.5.16 on.", "sample", in_collective=True),
    # weights.load
    Target("weights.load", _RUNNER, "ModelRunner.load_model", "weights.LOAD", "Target and draft, in every release."),
    Target("weights.load", _RUNNER, "ModelRunner.finalize_startup_weight_load", "weights.LOAD",
           "From 0.5.18 on the weights themselves may come after graph capture."),
    Target("weights.load", _LORA, "LoRAMemoryPool.init_buffers", "weights.LORA",
           "The buffers that hold the adapters in use.", worker="target"),
    # kv.profile
    Target("kv.profile", _RUNNER, "ModelRunner.profile_max_num_token", "kv.PROFILE_INLINE",
           "The budget in tokens, up to 0.5.6; bytes per token computed in the same body."),
    Target("kv.profile", _KV_MIXIN, "ModelRunnerKVCacheMixin.profile_max_num_token", "kv.PROFILE_TOKENS",
           "The budget in tokens, 0.5.7 to 0.5.10."),
    Target("kv.profile", _KV_MIXIN, "ModelRunnerKVCacheMixin._profile_available_bytes", "kv.PROFILE_BYTES",
           "The budget in bytes, 0.5.11 to 0.5.15; raises from 0.5.14 when nothing is left."),
    Target("kv.profile", _KV_CONFIGURATOR, "KVCacheConfigurator._profile_available_bytes", "kv.PROFILE_BYTES",
           "The budget in bytes, from 0.5.16 on, in a module of its own."),
    Target(None, _RUNNER, "get_available_gpu_memory", "kv_terms.AVAILABLE",
           "The term `available`: observed where the budget function looks it up, never called by us; up to 0.5.6.",
           "observe", unless=f"{_KV_MIXIN}:get_available_gpu_memory"),
    Target(None, _KV_MIXIN, "get_available_gpu_memory", "kv_terms.AVAILABLE", "0.5.7 to 0.5.15.", "observe"),
    Target(None, _KV_CONFIGURATOR, "get_available_gpu_memory", "kv_terms.AVAILABLE", "From 0.5.16 on.", "observe"),
    Target(None, _KV_MIXIN, "ModelRunnerKVCacheMixin.get_cell_size_per_token", "kv_terms.CELL_SIZE",
           "The term bytes per token, 0.5.7 to 0.5.10.", "observe"),
    Target(None, _CONFIGURATOR, "create_memory_pool_configurator", "kv_terms.CONFIGURATOR",
           "Bytes per token from 0.5.11 on; always imported inside a function.", "observe"),
    Target(None, _RUNNER, "ModelRunner.handle_max_mamba_cache", "kv_terms.MAMBA",
           "The mamba deduction: what goes in less what comes out; 0.5.3.post2 to 0.5.6.", "observe"),
    Target(None, _KV_MIXIN, "ModelRunnerKVCacheMixin.handle_max_mamba_cache", "kv_terms.MAMBA",
           "0.5.7 to 0.5.15.", "observe"),
    Target(None, _KV_CONFIGURATOR, "KVCacheConfigurator._handle_max_mamba_cache", "kv_terms.MAMBA",
           "From 0.5.16 on.", "observe"),
    Target(None, _KV_CONFIGURATOR, "mm_runtime_reservation_gb", "kv_terms.MULTIMODAL",
           "What is kept for multimodal features, from 0.5.18 on.", "observe"),
    Target(None, _KV_CONFIGURATOR, "pre_capture_activation_reserve_mb", "kv_terms.SLACK_FLOOR",
           "The floor on the slack of mamba models sized after graph capture, from 0.5.18 on.", "observe"),
    # kv.pool
    Target("kv.pool", _RUNNER, "ModelRunner.init_memory_pool", "pools.ALL",
           "All pools of a worker, the profile included, up to 0.5.6."),
    Target("kv.pool", _KV_MIXIN, "ModelRunnerKVCacheMixin.init_memory_pool", "pools.ALL", "0.5.7 to 0.5.15."),
    Target("kv.pool", _RUNNER, "ModelRunner.alloc_memory_pool", "pools.ALL", "From 0.5.16 on.",
           unless=f"{_KV_MIXIN}:ModelRunnerKVCacheMixin.init_memory_pool"),
    Target("kv.pool", _KV_CONFIGURATOR, "KVCacheConfigurator.configure", "pools.ALL",
           "What the method above calls; a span of its own only where something else calls it.", outermost=True),
    Target("kv.pool", _RUNNER, "ModelRunner.post_capture_resize_kv_pool", "pools.RESIZED",
           "From 0.5.16 on the final size may be set after graph capture."),
    Target("kv.pool", _POOL, "KVCache._finalize_allocation_log", "pools.SIZED",
           "Every concrete KV pool says its size once it is built, from 0.5.2 on.", "sample"),
    Target("kv.pool", _POOL, "NoOpMHATokenToKVPool._finalize_allocation_log", "pools.UNSIZED",
           "Overrides the line above and holds no cache, from 0.5.12 on.", "sample"),
    Target("kv.pool", _POOL, "MHATokenToKVPool.__init__", "pools.SIZED", "Up to 0.5.1.",
           unless="KVCache._finalize_allocation_log"),
    Target("kv.pool", _POOL, "MLATokenToKVPool.__init__", "pools.SIZED", "Up to 0.5.1.",
           unless="KVCache._finalize_allocation_log"),
    Target("kv.pool", _POOL, "DoubleSparseTokenToKVPool.__init__", "pools.SIZED",
           "Up to 0.5.10; never reports itself."),
    Target("kv.pool", _POOL, "MHATokenToKVPool._finalize_backing_tokens", "pools.BACKED",
           "The final size of a pool that was addresses alone until graphs were captured, from 0.5.16 on.", "sample"),
    Target("kv.pool", _POOL, "SWAKVPool.__init__", "pools.SIZED",
           "Holds two MHA pools, one for the window layers and one for the full ones; 0.4.9 to 0.5.7."),
    Target("kv.pool", _SWA_POOL, "SWAKVPool.__init__", "pools.SIZED", "The same from 0.5.8 on."),
    Target("kv.pool", _POOL, "HybridLinearKVPool.__init__", "pools.UNSIZED",
           "Holds an attention pool beside a mamba pool; its parts report themselves."),
    Target("kv.pool", _POOL, "MiniMaxSparseKVPool.__init__", "pools.UNSIZED", "Likewise, from 0.5.15 on."),
    Target("kv.pool", _V4_POOL, "DeepSeekV4TokenToKVPool.__init__", "pools.UNSIZED",
           "Does not report its size through the allocation log; from 0.5.12 on."),
    Target("kv.pool", _UNIFIED_POOL, "UnifiedKVPool.__init__", "pools.UNIFIED",
           "One buffer of which the pools of a hybrid model are views, from 0.5.15 on."),
    Target("kv.pool", _UNIFIED_POOL, "UnifiedKVPool.finalize_backing", "pools.UNIFIED",
           "Its final size after graph capture, from 0.5.21 on.", "sample"),
    Target("kv.pool", _POOL, "MambaPool.__init__", "pools.MAMBA", "State of the mamba layers, from 0.5.2 on."),
    Target("kv.pool", _POOL, "ReqToTokenPool.__init__", "pools.REQUEST",
           "The request pool; a subclass of it calls it for its own."),
    Target("kv.pool", _DECODE, "DecodeReqToTokenPool.__init__", "pools.REQUEST",
           "The request pool of a decode server; does not call its base; from 0.4.7 on."),
    # attention.init
    Target("attention.init", _RUNNER, "ModelRunner.init_attention_backends", "attention.INIT",
           "Also makes the cuBLAS workspace, from 0.5.14 on."),
    Target("attention.init", _RUNNER, "ModelRunner.init_attention_backend", "attention.INIT",
           "The backend alone, up to 0.5.15.", unless="ModelRunner.init_attention_backends"),
    # graph.capture
    Target("graph.capture", _RUNNER, "ModelRunner.init_cuda_graphs", "graph.CUDA_GRAPHS",
           "Decode graphs up to 0.4.10; from 0.5.14 on eager buffers, prefill and decode graphs."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_device_graphs", "graph.DECODE", "0.5.1 to 0.5.13."),
    Target("graph.capture", _RUNNER, "ModelRunner.init_piecewise_cuda_graphs", "graph.PREFILL", "0.5.6 to 0.5.13."),
    Target("graph.capture", _PIECEWISE, "PiecewiseCudaGraphRunner.__init__", "graph.PIECEWISE",
           "0.5.3 to 0.5.5 the runner's own constructor makes it.", outermost=True),
    Target("graph.capture", _RUNNER, "ModelRunner.init_decode_cuda_graph", "graph.DECODE", "0.5.14 to 0.5.15.",
           unless=f"{_GRAPH_SETUP}:capture_decode_graph"),
    Target("graph.capture", _RUNNER, "ModelRunner.init_prefill_cuda_graph", "graph.PREFILL", "0.5.14 to 0.5.15.",
           unless=f"{_GRAPH_SETUP}:capture_prefill_graph"),
    Target("graph.capture", _GRAPH_SETUP, "capture_decode_graph", "graph.DECODE", "From 0.5.16 on."),
    Target("graph.capture", _GRAPH_SETUP, "capture_prefill_graph", "graph.PREFILL", "From 0.5.16 on."),
    Target("graph.capture", f"{_SPECULATIVE}.eagle_worker", "EAGLEWorker.init_cuda_graphs", "graph.DRAFT",
           "The draft's own graphs, up to 0.5.12.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.multi_layer_eagle_worker", "MultiLayerEagleWorker.init_cuda_graphs",
           "graph.DRAFT", "0.5.7 to 0.5.12.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.frozen_kv_mtp_worker", "FrozenKVMTPWorker.init_cuda_graphs",
           "graph.DRAFT", "0.5.12 to 0.5.13.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.eagle_worker_v2", "EagleDraftWorker.init_cuda_graphs", "graph.DRAFT",
           "From 0.5.4 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.multi_layer_eagle_worker_v2",
           "MultiLayerEagleDraftWorker.init_cuda_graphs", "graph.DRAFT", "From 0.5.7 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.frozen_kv_mtp_worker_v2", "FrozenKVMTPDraftWorker.init_cuda_graphs",
           "graph.DRAFT", "From 0.5.14 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.standalone_worker_v2", "StandaloneDraftWorker.init_cuda_graphs",
           "graph.DRAFT", "Overrides EagleDraftWorker's, 0.5.14 to 0.5.21.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.dflash_worker_v2", "DFlashWorkerV2.init_cuda_graphs", "graph.DRAFT",
           "From 0.5.14 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.dspark_components.dspark_worker_v2", "DSparkWorkerV2.init_cuda_graphs",
           "graph.DRAFT", "From 0.5.16 on.", worker="draft"),
    Target("graph.capture", f"{_SPECULATIVE}.uno_worker_v2", "UnoWorkerV2.init_cuda_graphs", "graph.DRAFT",
           "From 0.5.20 on.", worker="draft"),
    # identity
    Target(None, "sglang.srt.managers.detokenizer_manager", "DetokenizerManager.__init__", "scheduler.PROCESS_ROLE",
           "This process is the detokenizer.", "observe"),
    Target(None, "sglang.srt.managers.data_parallel_controller", "DataParallelController.__init__",
           "scheduler.PROCESS_ROLE", "This process is the data-parallel controller.", "observe"),
    Target(None, "sglang.srt.managers.tokenizer_manager", "TokenizerManager.__init__", "scheduler.PROCESS_ROLE",
           "This process is a tokenizer worker, unless it is the launcher.", "observe"),
)
# fmt: on

MODULES: frozenset[str] = frozenset(target.module for target in TARGETS)


def targets_of(module: str) -> list[Target]:
    """Return the rows of one module, in the order of the table."""
    return [target for target in TARGETS if target.module == module]
