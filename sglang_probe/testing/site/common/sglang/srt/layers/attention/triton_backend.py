"""The Triton backend: buffers of its own, no workspace with a name."""

from __future__ import annotations

from typing import Any

from sglang._fake import phases
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend


class TritonAttnBackend(AttentionBackend):
    """Holds the scenario's attention bytes."""

    def __init__(self, model_runner: Any, skip_prefill: bool = False, kv_indptr_buf: Any = None) -> None:
        self._fake_buffers = phases.hold(phases.costs().attention_torch_bytes, "attention_workspace")

    def init_cuda_graph_state(
        self, max_bs: int, max_num_tokens: int, kv_indices_buf: Any = None, cuda_graph_num_kv_splits_buf: Any = None
    ) -> None:
        """Prepare nothing more."""
