"""The FlashInfer backend: one workspace that all its instances share."""

from __future__ import annotations

from typing import Any

import torch
from sglang._fake import phases
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

_fake_workspace_bytes = 384 << 20

global_workspace_buffer: torch.Tensor | None = None


class FlashInferAttnBackend(AttentionBackend):
    """Makes the shared workspace where there is none yet."""

    def __init__(
        self,
        model_runner: Any,
        skip_prefill: bool = False,
        kv_indptr_buf: Any = None,
        kv_last_page_len_buf: Any = None,
        init_new_workspace: bool = False,
    ) -> None:
        global global_workspace_buffer
        if global_workspace_buffer is None:
            (global_workspace_buffer,) = phases.hold(_fake_workspace_bytes, "attention_workspace")
        self.workspace_buffer = global_workspace_buffer

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int, kv_indices_buf: Any = None) -> None:
        """Prepare nothing more."""
