"""One rank's model: groups, weights, pools, attention, graphs, in the order that this release calls them."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from sglang._fake import attention, phases
from sglang._fake import model as fake_model
from sglang._fake.model import MambaConfig
from sglang.srt.configs.model_config import AttentionArch, ModelConfig
from sglang.srt.distributed.parallel_state import (
    get_pp_group,
    get_tp_group,
    get_world_group,
    init_distributed_environment,
    initialize_model_parallel,
    set_custom_all_reduce,
    set_mscclpp_all_reduce,
    set_torch_symm_mem_all_reduce,
)
from sglang.srt.layers.dp_attention import get_attention_tp_group, initialize_dp_attention
from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner
from sglang.srt.model_executor.model_runner_kv_cache_mixin import ModelRunnerKVCacheMixin
from sglang.srt.model_executor.piecewise_cuda_graph_runner import PiecewiseCudaGraphRunner
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils import get_available_gpu_memory, monkey_patch_p2p_access_check

logger = logging.getLogger(__name__)


class ModelRunner(ModelRunnerKVCacheMixin):
    """Does everything in `__init__`: a target is complete before its draft begins."""

    max_total_num_tokens: int
    max_running_requests: int
    full_max_total_num_tokens: int | None
    swa_max_total_num_tokens: int | None

    def __init__(
        self,
        model_config: ModelConfig,
        mem_fraction_static: float,
        gpu_id: int,
        tp_rank: int,
        tp_size: int,
        moe_ep_rank: int,
        moe_ep_size: int,
        pp_rank: int,
        pp_size: int,
        nccl_port: int,
        server_args: ServerArgs,
        dp_rank: int | None = None,
        attn_cp_rank: int | None = None,
        moe_dp_rank: int | None = None,
        is_draft_worker: bool = False,
        req_to_token_pool: Any = None,
        token_to_kv_pool_allocator: Any = None,
        draft_model_idx: int | None = None,
    ) -> None:
        self.mem_fraction_static = mem_fraction_static
        self.device, self.gpu_id = "cuda", gpu_id
        self.tp_rank, self.tp_size, self.pp_rank, self.pp_size = tp_rank, tp_size, pp_rank, pp_size
        self.moe_ep_rank, self.moe_ep_size, self.dp_rank = moe_ep_rank, moe_ep_size, dp_rank
        self.dp_size = server_args.dp_size if server_args.enable_dp_attention else 1
        self.attn_cp_rank, self.attn_cp_size = attn_cp_rank, server_args.attn_cp_size
        self.moe_dp_rank, self.moe_dp_size = moe_dp_rank, server_args.moe_dp_size
        self.model_config, self.dist_port, self.server_args = model_config, nccl_port, server_args
        self.is_draft_worker, self.draft_model_idx = is_draft_worker, draft_model_idx
        self.is_generation, self.is_multimodal = model_config.is_generation, model_config.is_multimodal
        self.spec_algorithm = SpeculativeAlgorithm.from_string(server_args.speculative_algorithm)
        self.page_size = server_args.page_size or 1
        self.req_to_token_pool, self.token_to_kv_pool_allocator = req_to_token_pool, token_to_kv_pool_allocator
        self.is_hybrid_swa = model_config.is_hybrid_swa
        self.use_mla_backend = model_config.attention_arch == AttentionArch.MLA
        set_global_server_args_for_scheduler(server_args)
        min_per_gpu_memory = self.init_torch_distributed()
        self.forward_stream = torch.cuda.Stream()
        self.initialize(min_per_gpu_memory)

    def initialize(self, min_per_gpu_memory: float) -> None:
        self.load_model()
        model_num_layers = self.model_config.num_nextn_predict_layers or self.model_config.num_hidden_layers
        stages, stage = (1, 0) if self.is_draft_worker else (self.pp_size, self.pp_rank)
        self.start_layer = model_num_layers * stage // stages
        self.end_layer = model_num_layers * (stage + 1) // stages
        self.num_effective_layers = self.end_layer - self.start_layer
        self.configure_kv_cache_dtype()
        self.init_memory_pool(min_per_gpu_memory)
        given = self.server_args.max_running_requests
        requests = self.max_total_num_tokens // 2 if given is None else given // self.dp_size
        self.max_running_requests = min(requests, self.req_to_token_pool.size)
        self.init_cublas()
        self.init_attention_backend()
        self.init_device_graphs()
        self.init_piecewise_cuda_graphs()

    def init_torch_distributed(self) -> float:
        tic = time.perf_counter()
        logger.info("Init torch distributed begin.")
        torch.get_device_module(self.device).set_device(self.gpu_id)
        if not self.is_draft_worker:
            phases.enter("dist.init")
        before_avail_memory = get_available_gpu_memory(self.device, self.gpu_id)
        if not self.server_args.enable_p2p_check:
            monkey_patch_p2p_access_check()
        set_custom_all_reduce(not self.server_args.disable_custom_all_reduce)
        set_mscclpp_all_reduce(self.server_args.enable_mscclpp)
        set_torch_symm_mem_all_reduce(self.server_args.enable_torch_symm_mem)
        if not self.is_draft_worker:
            self._fake_make_groups()
        min_per_gpu_memory = get_available_gpu_memory(
            self.device,
            self.gpu_id,
            distributed=get_world_group().world_size > 1,
            cpu_group=get_world_group().cpu_group,
        )
        self.tp_group, self.pp_group = get_tp_group(), get_pp_group()
        self.attention_tp_group = get_attention_tp_group()
        local_gpu_memory = get_available_gpu_memory(self.device, self.gpu_id)
        if self.tp_size > 1 and not self.is_draft_worker and min_per_gpu_memory < local_gpu_memory * 0.9:
            raise RuntimeError(
                "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                f"{min_per_gpu_memory=}, {local_gpu_memory=}, {local_gpu_memory * 0.9=}"
            )
        logger.info(
            f"Init torch distributed ends. elapsed={time.perf_counter() - tic:.2f} s, "
            f"mem usage={(before_avail_memory - local_gpu_memory):.2f} GB"
        )
        return min_per_gpu_memory

    def _fake_make_groups(self) -> None:
        given = self.server_args.dist_init_addr
        init_distributed_environment(
            backend="nccl",
            world_size=self.tp_size * self.pp_size,
            rank=self.tp_size * self.pp_rank + self.tp_rank,
            local_rank=self.gpu_id,
            distributed_init_method=f"tcp://{given or f'127.0.0.1:{self.dist_port}'}",
            timeout=self.server_args.dist_timeout,
        )
        initialize_model_parallel(
            tensor_model_parallel_size=self.tp_size,
            attention_data_parallel_size=self.dp_size,
            pipeline_model_parallel_size=self.pp_size,
            expert_model_parallel_size=self.moe_ep_size,
            attention_context_model_parallel_size=self.attn_cp_size,
            moe_data_model_parallel_size=self.moe_dp_size,
        )
        initialize_dp_attention(server_args=self.server_args, model_config=self.model_config)

    def load_model(self) -> None:
        tic_total = time.perf_counter()
        before_avail_memory = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(
            f"Load weight begin. avail mem={get_available_gpu_memory(self.device, self.gpu_id):.2f} GB"
        )
        phases.enter("draft.weights.load" if self.is_draft_worker else "weights.load")
        self.model = fake_model.load(self.is_draft_worker)
        self.sliding_window_size = None
        self.dtype = self.model_config.dtype
        after_avail_memory = get_available_gpu_memory(self.device, self.gpu_id)
        self.weight_load_mem_usage = before_avail_memory - after_avail_memory
        logger.info(
            f"Load weight end. elapsed={time.perf_counter() - tic_total:.2f} s, "
            f"type={type(self.model).__name__}, dtype={self.dtype}, "
            f"avail mem={after_avail_memory:.2f} GB, mem usage={self.weight_load_mem_usage:.2f} GB."
        )
        torch.distributed.monitored_barrier(group=get_tp_group().cpu_group)

    @property
    def max_token_pool_size(self) -> int:
        return (self.full_max_total_num_tokens or 0) if self.is_hybrid_swa else self.max_total_num_tokens

    @property
    def mambaish_config(self) -> Any:
        model = phases.scenario().model
        return MambaConfig(model) if model.mamba_layers and not self.is_draft_worker else None

    def configure_kv_cache_dtype(self) -> None:
        named = {"auto": self.dtype, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
        self.kv_cache_dtype = named.get(self.server_args.kv_cache_dtype, torch.bfloat16)

    def init_cublas(self) -> None:
        phases.enter("attention.init")
        if not self.is_draft_worker:
            phases.charge(phases.costs().cublas_bytes, "cublas")

    def init_attention_backend(self) -> None:
        self.prefill_attention_backend_str, self.decode_attention_backend_str = (
            self.server_args.get_attention_backends()
        )
        self.attn_backend = attention.backend(self.prefill_attention_backend_str or "", self)

    def init_device_graphs(self) -> None:
        self.graph_runner: CudaGraphRunner | None = None
        self.graph_mem_usage = 0.0
        if self.server_args.disable_cuda_graph:
            return
        tic = time.perf_counter()
        before_mem = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(
            f"Capture cuda graph begin. This can take up to several minutes. avail mem={before_mem:.2f} GB"
        )
        self.graph_runner = CudaGraphRunner(self)
        after_mem = get_available_gpu_memory(self.device, self.gpu_id)
        self.graph_mem_usage = before_mem - after_mem
        logger.info(
            f"Capture cuda graph end. Time elapsed: {time.perf_counter() - tic:.2f} s. "
            f"mem usage={self.graph_mem_usage:.2f} GB. avail mem={after_mem:.2f} GB."
        )

    def init_piecewise_cuda_graphs(self) -> None:
        self.piecewise_cuda_graph_runner: PiecewiseCudaGraphRunner | None = None
        if not self.server_args.enable_piecewise_cuda_graph:
            return
        tic = time.perf_counter()
        before_mem = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(f"Capture piecewise CUDA graph begin. avail mem={before_mem:.2f} GB")
        self.piecewise_cuda_graph_runner = PiecewiseCudaGraphRunner(self)
        after_mem = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(
            f"Capture piecewise CUDA graph end. Time elapsed: {time.perf_counter() - tic:.2f} s. "
            f"mem usage={before_mem - after_mem:.2f} GB. avail mem={after_mem:.2f} GB."
        )
