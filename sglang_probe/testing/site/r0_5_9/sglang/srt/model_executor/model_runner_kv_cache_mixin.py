"""How much memory the KV cache gets, and the pools built from it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang._fake import phases
from sglang.srt.distributed.parallel_state import get_world_group
from sglang.srt.layers.dp_attention import get_attention_tp_size
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import (
    HybridLinearKVPool,
    HybridReqToTokenPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    NSATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.utils.common import get_available_gpu_memory

MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO = 3

logger = logging.getLogger(__name__)


class ModelRunnerKVCacheMixin:
    def get_cell_size_per_token(self: Any, num_layers: int) -> int:
        element, config = torch._utils._element_size(self.kv_cache_dtype), self.model_config
        if self.use_mla_backend:
            cell = (config.kv_lora_rank + config.qk_rope_head_dim) * num_layers * element
            if config.hf_config.index_head_dim is not None:
                index = config.hf_config.index_head_dim
                scaled = index + index // NSATokenToKVPool.quant_block_size * 4
                cell += scaled * num_layers * NSATokenToKVPool.index_k_with_scale_buffer_dtype.itemsize
            return int(cell)
        full = config.get_num_kv_heads(get_attention_tp_size()) * (config.head_dim + config.v_head_dim)
        if not config.is_hybrid_swa:
            return int(full * num_layers * element)
        window = config.get_swa_num_kv_heads(get_attention_tp_size()) * (config.swa_head_dim + config.swa_v_head_dim)
        layers = len(config.full_attention_layer_ids), len(config.swa_attention_layer_ids)
        return int((full * layers[0] + window * layers[1]) * element)

    def profile_max_num_token(self: Any, total_gpu_memory: float) -> int:
        phases.enter("kv.profile")
        available_gpu_memory = get_available_gpu_memory(
            self.device,
            self.gpu_id,
            distributed=get_world_group().world_size > 1,
            cpu_group=get_world_group().cpu_group,
        )
        mamba = self.mambaish_config
        num_layers = len(mamba.full_attention_layer_ids) if mamba else self.num_effective_layers
        cell_size = self.get_cell_size_per_token(num_layers)
        rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)
        if mamba is not None:
            rest_memory = self.handle_max_mamba_cache(rest_memory)
        return int(int(rest_memory * (1 << 30)) // cell_size)

    def handle_max_mamba_cache(self: Any, total_rest_memory: float) -> float:
        per_req = self.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        if self.server_args.max_mamba_cache_size is None:
            ratio = self.server_args.mamba_full_memory_ratio
            budget = total_rest_memory * ratio / (1 + ratio)
            self.server_args.max_mamba_cache_size = int(budget * (1 << 30) // per_req)
        return float(total_rest_memory - self.server_args.max_mamba_cache_size * per_req / (1 << 30))

    def set_num_tokens_hybrid_swa(self: Any) -> None:
        page_size, ratio = self.page_size, self.server_args.swa_full_tokens_ratio
        layers = len(self.model_config.full_attention_layer_ids), len(self.model_config.swa_attention_layer_ids)
        whole = self.max_total_num_tokens * (layers[0] + layers[1])
        tokens = int(whole / (layers[0] + ratio * layers[1]))
        self.full_max_total_num_tokens = tokens // page_size * page_size
        self.swa_max_total_num_tokens = int(tokens * ratio) // page_size * page_size
        self.max_total_num_tokens = self.full_max_total_num_tokens
        logger.info(
            f"Use sliding window memory pool. full_layer_tokens={self.full_max_total_num_tokens}, "
            f"swa_layer_tokens={self.swa_max_total_num_tokens}"
        )

    def init_memory_pool(self: Any, total_gpu_memory: float) -> None:
        phases.enter("kv.pool")
        max_total_tokens = self.server_args.max_total_tokens
        self.max_total_num_tokens = self.profile_max_num_token(total_gpu_memory)
        max_num_reqs = _fake_max_num_reqs(self)
        if max_total_tokens is not None:
            if max_total_tokens > self.max_total_num_tokens:
                logging.warning(
                    f"max_total_tokens={max_total_tokens} is larger than the profiled value "
                    f"{self.max_total_num_tokens}. Use the profiled value instead."
                )
            self.max_total_num_tokens = min(self.max_total_num_tokens, max_total_tokens)
        self.max_total_num_tokens = self.max_total_num_tokens // self.page_size * self.page_size
        if self.pp_size > 1:
            tensor = torch.tensor(self.max_total_num_tokens, dtype=torch.int64)
            group = get_world_group().cpu_group
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=group)
            self.max_total_num_tokens = tensor.item()
        if not self.spec_algorithm.is_none() and self.is_draft_worker:
            self.max_total_num_tokens = self.server_args.draft_runner_cache_size
            max_num_reqs = self.server_args.max_num_reqs
        if self.is_hybrid_swa:
            self.set_num_tokens_hybrid_swa()
        if not self.spec_algorithm.is_none() and not self.is_draft_worker:
            self.server_args.draft_runner_cache_size = self.max_total_num_tokens
            self.server_args.max_num_reqs = max_num_reqs
        if self.max_total_num_tokens <= 0:
            raise RuntimeError(
                f"Not enough memory. Please try to increase --mem-fraction-static. "
                f"Current value: {self.server_args.mem_fraction_static=}"
            )
        if self.req_to_token_pool is None:
            self.req_to_token_pool = _fake_request_pool(self, max_num_reqs)
        self.token_to_kv_pool = _fake_kv_pool(self)
        if self.token_to_kv_pool_allocator is None:
            self.token_to_kv_pool_allocator = TokenToKVPoolAllocator(
                self.max_total_num_tokens,
                dtype=self.kv_cache_dtype,
                device=self.device,
                kvcache=self.token_to_kv_pool,
                need_sort=False,
            )
        logger.info(f"Memory pool end. avail mem={get_available_gpu_memory(self.device, self.gpu_id):.2f} GB")


def _fake_max_num_reqs(runner: Any) -> int:
    given = runner.server_args.max_running_requests
    by_length = int(runner.max_total_num_tokens / runner.model_config.context_len * 512)
    requests = min(max(by_length, 2048), 4096) if given is None else given
    if runner.mambaish_config is not None:
        slots = (runner.server_args.max_mamba_cache_size or 0) // MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO
        requests = min(requests, slots)
    return requests


def _fake_request_pool(runner: Any, size: int) -> Any:
    common: dict[str, Any] = {
        "size": size,
        "max_context_len": runner.model_config.context_len + 4,
        "device": runner.device,
        "enable_memory_saver": runner.server_args.enable_memory_saver,
    }
    config = runner.mambaish_config
    if config is None and runner.server_args.disaggregation_mode == "decode":
        from sglang.srt.disaggregation.decode import DecodeReqToTokenPool

        return DecodeReqToTokenPool(**common, pre_alloc_size=0)
    if config is None:
        return ReqToTokenPool(**common)
    return HybridReqToTokenPool(
        **common,
        mamba_size=runner.server_args.max_mamba_cache_size or 0,
        mamba_spec_state_size=size,
        cache_params=config.mamba2_cache_params,
        enable_mamba_extra_buffer=False,
    )


def _fake_kv_pool(runner: Any) -> Any:
    config = runner.model_config
    common: dict[str, Any] = {"page_size": runner.page_size, "dtype": runner.kv_cache_dtype, "device": runner.device}
    heads: dict[str, Any] = {"head_num": config.get_num_kv_heads(get_attention_tp_size()), "head_dim": config.head_dim}
    latent: dict[str, Any] = {"kv_lora_rank": config.kv_lora_rank, "qk_rope_head_dim": config.qk_rope_head_dim}
    layers: dict[str, Any] = {"layer_num": runner.num_effective_layers, "enable_memory_saver": False}
    size = runner.max_total_num_tokens
    if runner.use_mla_backend and config.hf_config.index_head_dim is not None:
        dim = config.kv_lora_rank + config.qk_rope_head_dim
        index = config.hf_config.index_head_dim
        return NSATokenToKVPool(size, **common, **latent, **layers, index_head_dim=index, kv_cache_dim=dim)
    if runner.use_mla_backend:
        return MLATokenToKVPool(size, **common, **latent, **layers)
    if runner.is_hybrid_swa:
        return SWAKVPool(
            size=runner.full_max_total_num_tokens or 0,
            size_swa=runner.swa_max_total_num_tokens or 0,
            **common,
            **heads,
            swa_attention_layer_ids=config.swa_attention_layer_ids,
            full_attention_layer_ids=config.full_attention_layer_ids,
            enable_kvcache_transpose=False,
        )
    if runner.mambaish_config is not None:
        return HybridLinearKVPool(
            size=size,
            **common,
            **heads,
            full_attention_layer_ids=runner.mambaish_config.full_attention_layer_ids,
            enable_kvcache_transpose=False,
            mamba_pool=runner.req_to_token_pool.mamba_pool,
        )
    return MHATokenToKVPool(size, **common, **heads, **layers)
