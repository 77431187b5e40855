"""How much memory the KV cache gets, and the pools built from it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from sglang._fake import phases
from sglang.srt.distributed.parallel_state import get_world_group
from sglang.srt.layers.dp_attention import get_attention_tp_size
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    HybridReqToTokenPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
    NoOpMHATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.utils.common import get_available_gpu_memory

if TYPE_CHECKING:
    from sglang.srt.model_executor.pool_configurator import MemoryPoolConfig

MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO = 3

logger = logging.getLogger(__name__)


class ModelRunnerKVCacheMixin:
    def _profile_available_bytes(self: Any, pre_model_load_memory: float) -> int:
        phases.enter("kv.profile")
        available_gpu_memory = get_available_gpu_memory(
            self.device,
            self.gpu_id,
            distributed=get_world_group().world_size > 1,
            cpu_group=get_world_group().cpu_group,
        )
        rest_memory = available_gpu_memory - pre_model_load_memory * (1 - self.mem_fraction_static)
        if self.mambaish_config is not None:
            rest_memory = self.handle_max_mamba_cache(rest_memory)
        if rest_memory <= 0:
            minimum = 1 - available_gpu_memory / pre_model_load_memory
            suggested = math.ceil(minimum * 1000) / 1000
            raise ValueError(
                f"Loaded weights leave no GPU memory for the KV cache under "
                f"--mem-fraction-static={self.mem_fraction_static}. Raise --mem-fraction-static above {suggested:.3f} "
                f"(minimum viable = 1 - available/pre = {minimum:.4f}). If using speculative decoding, draft weights "
                f"are now counted."
            )
        return int(rest_memory * (1 << 30))

    def handle_max_mamba_cache(self: Any, total_rest_memory: float) -> float:
        per_req = self.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        if self.server_args.max_mamba_cache_size is None:
            ratio = self.server_args.mamba_full_memory_ratio
            budget = total_rest_memory * ratio / (1 + ratio)
            self.server_args.max_mamba_cache_size = int(budget * (1 << 30) // per_req)
        if self.server_args.max_mamba_cache_size <= 0:
            raise RuntimeError(
                f"Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
                f"Computed max_mamba_cache_size={self.server_args.max_mamba_cache_size} "
                f"(total_rest_memory={total_rest_memory:.2f} GB, mamba_cache_per_req={per_req / (1 << 20):.2f} MB)."
            )
        return float(total_rest_memory - self.server_args.max_mamba_cache_size * per_req / (1 << 30))

    def _init_pools(self: Any) -> None:
        if self.req_to_token_pool is None:
            self.req_to_token_pool = _fake_request_pool(self)
        self.token_to_kv_pool = _fake_kv_pool(self)
        if self.token_to_kv_pool_allocator is None:
            self.token_to_kv_pool_allocator = TokenToKVPoolAllocator(
                self.max_total_num_tokens,
                dtype=self.kv_cache_dtype,
                device=self.device,
                kvcache=self.token_to_kv_pool,
                need_sort=False,
            )

    def _apply_token_constraints(self: Any, token_capacity: int) -> int:
        user_limit = self.server_args.max_total_tokens
        if user_limit is not None:
            if user_limit > token_capacity:
                logging.warning(
                    f"max_total_tokens={user_limit} is larger than the profiled value "
                    f"{token_capacity}. Use the profiled value instead."
                )
            token_capacity = min(token_capacity, user_limit)
        if self.pp_size > 1:
            tensor = torch.tensor(token_capacity, dtype=torch.int64)
            group = get_world_group().cpu_group
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=group)
            token_capacity = tensor.item()
        return token_capacity

    def _resolve_max_num_reqs(self: Any, token_capacity: int) -> int:
        estimated = max(min(int(token_capacity / self.model_config.context_len * 512), 4096), 2048)
        given = self.server_args.max_running_requests
        requests = min(estimated if given is None else given // self.dp_size, token_capacity // 2)
        if self.mambaish_config is not None:
            slots = self.server_args.max_mamba_cache_size // MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO
            requests = min(requests, slots)
        return requests

    def _apply_memory_pool_config(self: Any, config: MemoryPoolConfig) -> None:
        self.max_total_num_tokens = config.max_total_num_tokens
        self.max_running_requests = config.max_running_requests or 0
        if self.is_hybrid_swa:
            self.full_max_total_num_tokens = config.full_max_total_num_tokens
            self.swa_max_total_num_tokens = config.swa_max_total_num_tokens
        self._init_pools()

    def _resolve_memory_pool_config(self: Any, pre_model_load_memory: float) -> MemoryPoolConfig:
        from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator

        available_bytes = self._profile_available_bytes(pre_model_load_memory)
        page_size = self.page_size
        configurator = create_memory_pool_configurator(self)
        config = configurator.calculate_pool_sizes(available_bytes, page_size)
        constrained = self._apply_token_constraints(config.max_total_num_tokens)
        if constrained != config.max_total_num_tokens:
            config = configurator.calculate_pool_sizes_from_max_tokens(constrained, page_size)
        config.max_running_requests = self._resolve_max_num_reqs(config.max_total_num_tokens)
        config.mem_fraction_static = self.server_args.mem_fraction_static
        return config

    def init_memory_pool(self: Any, pre_model_load_memory: float) -> None:
        phases.enter("kv.pool")
        if self.spec_algorithm.is_none() or not self.is_draft_worker:
            self.memory_pool_config = self._resolve_memory_pool_config(pre_model_load_memory)
        assert self.memory_pool_config is not None, "Draft worker requires memory_pool_config"
        self._apply_memory_pool_config(self.memory_pool_config)
        logger.info(f"Memory pool end. avail mem={get_available_gpu_memory(self.device, self.gpu_id):.2f} GB")


def _fake_request_pool(runner: Any) -> Any:
    common: dict[str, Any] = {
        "size": runner.max_running_requests,
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
        mamba_spec_state_size=runner.max_running_requests,
        cache_params=config.mamba2_cache_params,
        mamba_layer_ids=config.mamba2_cache_params.layers,
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
        return DSATokenToKVPool(size, **common, **latent, **layers, index_head_dim=index, kv_cache_dim=dim)
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
    kind = NoOpMHATokenToKVPool if runner.server_args.prefill_only_disable_kv_cache else MHATokenToKVPool
    return kind(size, **common, **heads, **layers)
