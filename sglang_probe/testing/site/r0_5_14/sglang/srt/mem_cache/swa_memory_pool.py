"""Two pools of a model with a sliding window: one for the window layers, one for the others."""

from __future__ import annotations

import logging
from typing import Any

from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.memory_pool import GB, MHATokenToKVPool

logger = logging.getLogger(__name__)


class SWAKVPool(BaseSWAKVPool):
    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        dtype: Any,
        head_num: int,
        head_dim: int,
        swa_attention_layer_ids: list[int],
        full_attention_layer_ids: list[int],
        enable_kvcache_transpose: bool,
        device: str,
        token_to_kv_pool_class: Any = MHATokenToKVPool,
        **kwargs: Any,
    ) -> None:
        self.size, self.size_swa, self.page_size, self.dtype, self.device = size, size_swa, page_size, dtype, device
        self.layer_num = len(full_attention_layer_ids) + len(swa_attention_layer_ids)

        def part(tokens: int, layers: list[int]) -> Any:
            return token_to_kv_pool_class(
                size=tokens,
                page_size=page_size,
                dtype=dtype,
                head_num=head_num,
                head_dim=head_dim,
                layer_num=len(layers),
                device=device,
                enable_memory_saver=False,
            )

        self.swa_kv_pool = part(size_swa, swa_attention_layer_ids)
        self.full_kv_pool = part(size, full_attention_layer_ids)
        self.mem_usage = sum(self.get_kv_size_bytes()) / GB
        logger.info(
            f"SWAKVPool mem usage: {self.mem_usage:.2f} GB, swa size: {self.size_swa}, full size: {self.size}"
        )

    def get_kv_size_bytes(self) -> tuple[int, int]:
        (k, v), (k_swa, v_swa) = self.full_kv_pool.get_kv_size_bytes(), self.swa_kv_pool.get_kv_size_bytes()
        return k + k_swa, v + v_swa
