"""What SGLang knows of a model before it loads it."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import torch
from fakegpu.scenario import Model
from sglang._fake import phases
from sglang._fake.model import HfConfig


class AttentionArch(IntEnum):
    MLA = auto()
    MHA = auto()


class ModelConfig:
    """Shape and types of one model."""

    is_generation = True
    is_multimodal = False
    is_encoder_decoder = False

    @staticmethod
    def from_server_args(
        server_args: Any,
        model_path: str | None = None,
        model_revision: str | None = None,
        is_draft_model: bool = False,
        **kwargs: Any,
    ) -> ModelConfig:
        """Return the configuration of the scenario's model, or of its draft."""
        config = ModelConfig()
        config._fake_fill(phases.scenario().model, server_args, is_draft_model)
        return config

    def _fake_fill(self, model: Model, server_args: Any, draft: bool) -> None:
        self.hf_config = self.hf_text_config = HfConfig(model, draft)
        self.attention_arch = AttentionArch.MHA if model.kv_lora_rank is None else AttentionArch.MLA
        self.context_len = server_args.context_length or model.context_len
        self.vocab_size, self.hidden_size = model.vocab_size, model.hidden_size
        self.dtype, self.quantization = getattr(torch, model.dtype), server_args.quantization
        self.num_hidden_layers = self.num_attention_layers = model.layers
        self.num_nextn_predict_layers = model.draft_layers if draft else None
        self.head_dim = self.v_head_dim = self.swa_head_dim = self.swa_v_head_dim = model.head_dim
        self.kv_lora_rank, self.qk_rope_head_dim = model.kv_lora_rank or 0, model.qk_rope_head_dim
        self.is_hybrid_swa = model.swa_layers > 0 and not draft
        self.is_hybrid_swa_compress = False
        window = range(model.swa_layers)
        self.swa_attention_layer_ids = list(window)
        self.full_attention_layer_ids = [layer for layer in range(model.layers) if layer not in window]
        self._fake_kv_heads = model.kv_heads

    def get_total_num_kv_heads(self) -> int:
        return self._fake_kv_heads

    def get_num_kv_heads(self, tensor_parallel_size: int) -> int:
        """Return this rank's share, at least one head."""
        return max(1, self.get_total_num_kv_heads() // tensor_parallel_size)

    def get_swa_num_kv_heads(self, tensor_parallel_size: int) -> int:
        return self.get_num_kv_heads(tensor_parallel_size)
