"""From bytes to tokens, per kind of model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.dp_attention import get_attention_tp_size
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool

logger = logging.getLogger(__name__)


@dataclass
class MemoryPoolConfig:
    """The sizes of all pools, shared by the target and its draft. Raises RuntimeError where no token fits."""

    max_total_num_tokens: int
    max_running_requests: int | None = None
    full_max_total_num_tokens: int | None = None
    swa_max_total_num_tokens: int | None = None
    mem_fraction_static: float | None = None

    def __post_init__(self) -> None:
        if self.max_total_num_tokens <= 0:
            message = "Not enough memory. Please try to increase --mem-fraction-static."
            if self.mem_fraction_static is not None:
                message += f" Current value: mem_fraction_static={self.mem_fraction_static}"
            raise RuntimeError(message)


class MemoryPoolConfigurator:
    def calculate_pool_sizes(self, available_bytes: int, page_size: int) -> MemoryPoolConfig:
        raise NotImplementedError

    def calculate_pool_sizes_from_max_tokens(self, max_total_num_tokens: int, page_size: int) -> MemoryPoolConfig:
        raise NotImplementedError


class DefaultPoolConfigurator(MemoryPoolConfigurator):
    """One pool; a draft's layers are counted in a token's bytes."""

    def __init__(self, mr: Any) -> None:
        mamba = mr.mambaish_config
        layers = len(mamba.full_attention_layer_ids) if mamba else mr.num_effective_layers
        self._cell_size = self._compute_cell_size(mr, layers)
        draft_layers = getattr(mr, "eagle_draft_num_layers", None)
        if mr.spec_algorithm.is_eagle() and not mr.is_draft_worker and draft_layers:
            self._cell_size = int(self._cell_size * (1 + int(draft_layers) / int(layers)))

    def _compute_cell_size(self, mr: Any, num_layers: int) -> int:
        config, element = mr.model_config, torch._utils._element_size(mr.kv_cache_dtype)
        if not mr.use_mla_backend:
            heads = config.get_num_kv_heads(get_attention_tp_size())
            return int(heads * (config.head_dim + config.v_head_dim) * num_layers * element)
        cell = (config.kv_lora_rank + config.qk_rope_head_dim) * num_layers * element
        if config.hf_config.index_head_dim is not None:
            index = config.hf_config.index_head_dim
            scaled = index + index // DSATokenToKVPool.quant_block_size * 4
            cell += scaled * num_layers * DSATokenToKVPool.index_k_with_scale_buffer_dtype.itemsize
        return int(cell)

    def calculate_pool_sizes(self, available_bytes: int, page_size: int) -> MemoryPoolConfig:
        return self.calculate_pool_sizes_from_max_tokens(available_bytes // self._cell_size, page_size)

    def calculate_pool_sizes_from_max_tokens(self, max_total_num_tokens: int, page_size: int) -> MemoryPoolConfig:
        return MemoryPoolConfig(max_total_num_tokens=max_total_num_tokens // page_size * page_size)


class HybridSWAPoolConfigurator(MemoryPoolConfigurator):
    """Two pools, of which the window's is a fixed part of the other."""

    def __init__(self, mr: Any) -> None:
        config, element = mr.model_config, torch._utils._element_size(mr.kv_cache_dtype)
        tp = get_attention_tp_size()
        full = config.get_num_kv_heads(tp) * (config.head_dim + config.v_head_dim) * element
        window = config.get_swa_num_kv_heads(tp) * (config.swa_head_dim + config.swa_v_head_dim) * element
        self._swa_full_tokens_ratio = mr.server_args.swa_full_tokens_ratio
        self._cell_size = full * len(config.full_attention_layer_ids) + (
            self._swa_full_tokens_ratio * window * len(config.swa_attention_layer_ids)
        )

    def calculate_pool_sizes(self, available_bytes: int, page_size: int) -> MemoryPoolConfig:
        return self._solve_pool_sizes(int(available_bytes // self._cell_size), page_size)

    def calculate_pool_sizes_from_max_tokens(self, max_total_num_tokens: int, page_size: int) -> MemoryPoolConfig:
        return self._solve_pool_sizes(max_total_num_tokens, page_size)

    def _solve_pool_sizes(self, max_total_num_tokens: int, page_size: int) -> MemoryPoolConfig:
        full_tokens = max_total_num_tokens // page_size * page_size
        swa_tokens = int(full_tokens * self._swa_full_tokens_ratio) // page_size * page_size
        logger.info(
            f"Use sliding window memory pool. full_layer_tokens={full_tokens}, swa_layer_tokens={swa_tokens}"
        )
        return MemoryPoolConfig(
            max_total_num_tokens=full_tokens,
            full_max_total_num_tokens=full_tokens,
            swa_max_total_num_tokens=swa_tokens,
        )


def create_memory_pool_configurator(mr: Any) -> MemoryPoolConfigurator:
    """Return the configurator that suits the model."""
    return HybridSWAPoolConfigurator(mr) if mr.is_hybrid_swa else DefaultPoolConfigurator(mr)
