"""What a decode server of a disaggregated pair has of its own."""

from __future__ import annotations

import torch
from fakegpu.cuda import cuda


class DecodeReqToTokenPool:
    """A request pool with room for requests whose prefill runs elsewhere."""

    def __init__(
        self, size: int, max_context_len: int, device: str, enable_memory_saver: bool, pre_alloc_size: int
    ) -> None:
        self.size, self.pre_alloc_size = size, pre_alloc_size
        self.max_context_len, self.device = max_context_len, device
        rows = size + pre_alloc_size
        with cuda().label("request_pool"):
            self.req_to_token = torch.zeros((rows, max_context_len), dtype=torch.int32, device=device)
