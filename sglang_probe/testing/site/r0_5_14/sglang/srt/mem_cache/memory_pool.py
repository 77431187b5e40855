"""The pools: tensors for keys and values, for requests, and for the state of mamba layers."""

from __future__ import annotations

import abc
import logging
from typing import Any

import torch
from fakegpu.cuda import cuda

logger = logging.getLogger(__name__)

GB = 1024 * 1024 * 1024


def get_tensor_size_bytes(t: Any) -> int:
    """Return the bytes of a tensor or of all tensors of a list."""
    return sum(one.nbytes for one in t) if isinstance(t, list) else int(t.nbytes)


class ReqToTokenPool:
    """Where the tokens of each request lie."""

    def __init__(self, size: int, max_context_len: int, device: str, enable_memory_saver: bool) -> None:
        self.size, self.max_context_len, self.device = size, max_context_len, device
        self._alloc_size = size + 1
        with cuda().label("request_pool"):
            self.req_to_token = torch.zeros((self._alloc_size, max_context_len), dtype=torch.int32, device=device)
        self.free_slots = list(range(1, self._alloc_size))


class MambaPool:
    """The state of the mamba layers, per request."""

    def __init__(
        self,
        *,
        size: int,
        spec_state_size: int,
        cache_params: Any,
        mamba_layer_ids: list[int],
        device: str,
        enable_memory_saver: bool = False,
        speculative_num_draft_tokens: int | None = None,
        speculative_eagle_topk: int | None = None,
    ) -> None:
        self.size, self.device = size, device
        state, conv = (size + 1) * cache_params.mamba_cache_per_req, (size + 1) * cache_params.mamba_cache_per_req // 16
        with cuda().label("kv_pool"):
            self.mamba_cache = [
                torch.zeros((part,), dtype=torch.uint8, device=device) for part in (conv, state - conv)
            ]
        self.mem_usage = get_tensor_size_bytes(self.mamba_cache) / GB
        logger.info(
            f"Mamba Cache is allocated. max_mamba_cache_size: {size}, conv_state size: {conv / GB:.2f}GB, "
            f"ssm_state size: {(state - conv) / GB:.2f}GB "
        )


class HybridReqToTokenPool(ReqToTokenPool):
    """A request pool with a mamba pool beside it."""

    def __init__(
        self,
        *,
        size: int,
        mamba_size: int,
        mamba_spec_state_size: int,
        max_context_len: int,
        device: str,
        enable_memory_saver: bool,
        cache_params: Any,
        mamba_layer_ids: list[int],
        enable_mamba_extra_buffer: bool,
        enable_mamba_extra_buffer_lazy: bool = False,
        speculative_num_draft_tokens: int | None = None,
        speculative_eagle_topk: int | None = None,
        enable_overlap_schedule: bool = True,
        start_layer: int | None = None,
    ) -> None:
        super().__init__(size, max_context_len, device, enable_memory_saver)
        self.mamba_pool = MambaPool(
            size=mamba_size,
            spec_state_size=mamba_spec_state_size,
            cache_params=cache_params,
            mamba_layer_ids=mamba_layer_ids,
            device=device,
        )


class KVCache(abc.ABC):
    """A pool of keys and values."""

    @abc.abstractmethod
    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: Any,
        layer_num: int,
        device: str,
        enable_memory_saver: bool,
        start_layer: int | None = None,
        end_layer: int | None = None,
    ) -> None:
        self.size, self.page_size, self.dtype, self.device = size, page_size, dtype, device
        self.layer_num, self.start_layer = layer_num, start_layer or 0
        self.end_layer = end_layer or layer_num - 1
        self.store_dtype, self.mem_usage = dtype, 0.0

    def _finalize_allocation_log(self, num_tokens: int) -> None:
        sizes = self.get_kv_size_bytes()  # type: ignore[attr-defined]
        if isinstance(sizes, tuple):
            k_gb, v_gb = sizes[0] / GB, sizes[1] / GB
            logger.info(
                f"KV Cache is allocated. dtype: {self.dtype}, #tokens: {num_tokens}, "
                f"K size: {k_gb:.2f} GB, V size: {v_gb:.2f} GB"
            )
            self.mem_usage = k_gb + v_gb
        else:
            self.mem_usage = sizes / GB
            logger.info(
                f"KV Cache is allocated. dtype: {self.dtype}, #tokens: {num_tokens}, KV size: {self.mem_usage:.2f} GB"
            )

    def _fake_buffers(self, *shape: int) -> list[torch.Tensor]:
        with cuda().label("kv_pool"):
            whole = (self.size + self.page_size, *shape)
            return [torch.zeros(whole, dtype=self.store_dtype, device=self.device) for _ in range(self.layer_num)]


class MHATokenToKVPool(KVCache):
    """Keys and values of every head."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: Any,
        head_num: int,
        head_dim: int,
        layer_num: int,
        device: str,
        enable_memory_saver: bool,
        v_head_dim: int | None = None,
        swa_head_num: int | None = None,
        swa_head_dim: int | None = None,
        swa_v_head_dim: int | None = None,
        start_layer: int | None = None,
        end_layer: int | None = None,
        enable_alt_stream: bool = True,
        enable_kv_cache_copy: bool = False,
    ) -> None:
        super().__init__(size, page_size, dtype, layer_num, device, enable_memory_saver, start_layer, end_layer)
        self.head_num, self.head_dim, self.v_head_dim = head_num, head_dim, v_head_dim or head_dim
        self._create_buffers()
        self._finalize_allocation_log(size)

    def _create_buffers(self) -> None:
        self.k_buffer = self._fake_buffers(self.head_num, self.head_dim)
        self.v_buffer = self._fake_buffers(self.head_num, self.v_head_dim)

    def get_kv_size_bytes(self) -> tuple[int, int]:
        return get_tensor_size_bytes(self.k_buffer), get_tensor_size_bytes(self.v_buffer)


class NoOpMHATokenToKVPool(MHATokenToKVPool):
    """Keeps the size for the scheduler and next to nothing on the device."""

    def _create_buffers(self) -> None:
        self.k_buffer, self.v_buffer = [], []

    def _finalize_allocation_log(self, num_tokens: int) -> None:
        self.mem_usage = 0.0
        size = 2 * self.layer_num * self.page_size * self.head_num * self.head_dim * self.store_dtype.itemsize
        logger.info(
            f"KV Cache skipped (no-op pool). Logical #tokens: {num_tokens}, "
            f"physical K/V size: ~{size / 1024:.1f} KB placeholder"
        )

    def get_kv_size_bytes(self) -> tuple[int, int]:
        return 0, 0


class HybridLinearKVPool(KVCache):
    """The attention layers' pool of a hybrid model."""

    def __init__(
        self,
        size: int,
        dtype: Any,
        page_size: int,
        head_num: int,
        head_dim: int,
        full_attention_layer_ids: list[int],
        enable_kvcache_transpose: bool,
        device: str,
        mamba_pool: MambaPool,
        enable_memory_saver: bool = False,
        enable_kv_cache_copy: bool = False,
        use_mla: bool = False,
        kv_lora_rank: int | None = None,
        qk_rope_head_dim: int | None = None,
        start_layer: int | None = None,
    ) -> None:
        self.size, self.dtype, self.device, self.page_size, self.mamba_pool = size, dtype, device, page_size, mamba_pool
        layers = len(full_attention_layer_ids)
        self.full_kv_pool = MHATokenToKVPool(size, page_size, dtype, head_num, head_dim, layers, device, False)
        self.mem_usage = self.full_kv_pool.mem_usage

    def get_kv_size_bytes(self) -> tuple[int, int]:
        return self.full_kv_pool.get_kv_size_bytes()


class MLATokenToKVPool(KVCache):
    """One latent vector per token."""

    def __init__(
        self,
        size: int,
        page_size: int,
        dtype: Any,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        layer_num: int,
        device: str,
        enable_memory_saver: bool,
        start_layer: int | None = None,
        end_layer: int | None = None,
        use_dsa: bool = False,
        override_kv_cache_dim: int | None = None,
    ) -> None:
        super().__init__(size, page_size, dtype, layer_num, device, enable_memory_saver, start_layer, end_layer)
        self.kv_cache_dim = override_kv_cache_dim or kv_lora_rank + qk_rope_head_dim
        self._create_buffers()
        if not use_dsa:
            self._finalize_allocation_log(size)

    def _create_buffers(self) -> None:
        self.kv_buffer = self._fake_buffers(1, self.kv_cache_dim)

    def get_kv_size_bytes(self) -> int:
        return get_tensor_size_bytes(self.kv_buffer)


class DSATokenToKVPool(MLATokenToKVPool):
    """A latent pool with the keys of the sparse-attention indexer."""

    quant_block_size = 128
    index_k_with_scale_buffer_dtype = torch.uint8

    def __init__(
        self,
        size: int,
        page_size: int,
        kv_lora_rank: int,
        dtype: Any,
        qk_rope_head_dim: int,
        layer_num: int,
        device: str,
        index_head_dim: int,
        enable_memory_saver: bool,
        kv_cache_dim: int,
        start_layer: int | None = None,
        end_layer: int | None = None,
        index_buf_size: int | None = None,
    ) -> None:
        super().__init__(
            size, page_size, dtype, kv_lora_rank, qk_rope_head_dim, layer_num, device, enable_memory_saver, use_dsa=True
        )
        width = page_size * (index_head_dim + index_head_dim // self.quant_block_size * 4)
        pages = ((index_buf_size or size) + page_size + 1) // page_size
        kind = self.index_k_with_scale_buffer_dtype
        with cuda().label("kv_pool"):
            self.index_k_with_scale_buffer = [
                torch.zeros((pages, width), dtype=kind, device=device) for _ in range(layer_num)
            ]
        self._finalize_allocation_log(size)

    def get_kv_size_bytes(self) -> int:
        return super().get_kv_size_bytes() + get_tensor_size_bytes(self.index_k_with_scale_buffer)
