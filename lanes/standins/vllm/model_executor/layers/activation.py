"""Gives SGLang's own activations back to the module that defines them and is just being imported."""

from __future__ import annotations

from sglang.srt.layers.activation import GeluAndMul, SiluAndMul

__all__ = ["GeluAndMul", "SiluAndMul"]
