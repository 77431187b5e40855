"""Gives SGLang's own norms back to the module that defines them and is just being imported."""

from __future__ import annotations

from sglang.srt.layers.layernorm import GemmaRMSNorm, RMSNorm

__all__ = ["GemmaRMSNorm", "RMSNorm"]
