"""Shapes of common models: what a token takes of the KV cache, told from a model's class and the size of its weights.

SGLang prints the class (`Load weight end. type=Qwen2ForCausalLM`), never the shape. The shapes are facts of the models'
published configs: layers, KV heads, size of a head; or, with MLA, the size of the latent vector (`kv_lora_rank` +
`qk_rope_head_dim`), which every rank keeps whole. A class has many models, also some that are not listed here: what is
found is assumed, and the name of the model goes with it.

    MHA, GQA: layers x max(1, KV heads / tp) x size of a head x 2 (K and V) x bytes of the dtype
    MLA:      layers x latent x bytes of the dtype
Worked example: Qwen2-72B with tp 8: 80 x 1 x 128 x 2 x 2 = 40960 B; DeepSeek-V3 with any tp: 61 x 576 x 2 = 70272 B.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

BYTES_OF: Final[Mapping[str, int]] = MappingProxyType({
    "auto": 2, "bfloat16": 2, "float16": 2, "fp8_e5m2": 1, "fp8_e4m3": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
})  # fmt: skip
"""KV dtype -> bytes. `auto` is the model's own, which is one of 16 bits in every release."""
WIDTHS: Final = ((1.97, 2.07), (0.97, 1.18), (0.50, 0.75))
"""Bytes that a parameter takes on the devices: 16 bits, 8, and 4 with what stays in 16 (embeddings, scales)."""
SPREAD: Final = (0.50, 2.40)
"""The same of a mixture of experts: data-parallel attention and shared experts are kept more than once."""


class Shape(NamedTuple):
    """One model, or several of one shape and size."""

    model: str
    billions: float
    """Parameters, in units of 10^9."""
    layers: int
    kv_heads: int
    head: int
    """Size of a head; with MLA (`kv_heads` 0) of the latent vector."""
    experts: bool = False

    def bytes_per_token(self, tp: int, width: int) -> int:
        """Return what a token takes on each of `tp` ranks that share the heads, in a dtype of `width` bytes."""
        if not self.kv_heads:
            return self.layers * self.head * width
        return self.layers * max(1, self.kv_heads // tp) * self.head * 2 * width

    def weighs(self, weights_bytes: int) -> bool:
        """Say whether all its weights together can be so large."""
        ratio = weights_bytes / (self.billions * 1e9)
        bounds = (SPREAD,) if self.experts else WIDTHS
        return any(least <= ratio <= most for least, most in bounds)


class Guess(NamedTuple):
    """What a token takes on one rank, if the model is what it seems to be."""

    bytes: int
    of_model: str
    says: str
    """The arithmetic: `80 layers x 1 KV head x 128 x 2 x 2 B`."""
    basis: Literal["assumed"] = "assumed"


_S: Final = Shape
SHAPES: Final[Mapping[str, tuple[Shape, ...]]] = MappingProxyType({
    "LlamaForCausalLM": (
        _S("Llama-2-7B", 6.74, 32, 32, 128), _S("Llama-2-13B", 13.0, 40, 40, 128),
        _S("Llama-2-70B", 69.0, 80, 8, 128), _S("Llama-3-8B", 8.03, 32, 8, 128),
        _S("Llama-3-70B", 70.6, 80, 8, 128), _S("Llama-3.1-405B", 405.9, 126, 8, 128),
        _S("Llama-3.2-1B", 1.24, 16, 8, 64), _S("Llama-3.2-3B", 3.21, 28, 8, 128),
        _S("CodeLlama-34B", 33.7, 48, 8, 128), _S("Yi-34B", 34.4, 60, 8, 128), _S("Yi-6B", 6.06, 32, 4, 128),
        _S("DeepSeek-LLM-67B", 67.4, 95, 8, 128), _S("TinyLlama-1.1B", 1.10, 22, 4, 64),
    ),
    "Qwen2ForCausalLM": (
        _S("Qwen2.5-0.5B", 0.494, 24, 2, 64), _S("Qwen2.5-1.5B", 1.54, 28, 2, 128), _S("Qwen2.5-3B", 3.09, 36, 2, 128),
        _S("Qwen2.5-7B", 7.62, 28, 4, 128), _S("Qwen2.5-14B", 14.8, 48, 8, 128), _S("Qwen2.5-32B", 32.8, 64, 8, 128),
        _S("Qwen2-72B", 72.7, 80, 8, 128), _S("Qwen1.5-0.5B", 0.62, 24, 16, 64), _S("Qwen1.5-1.8B", 1.84, 24, 16, 128),
        _S("Qwen1.5-4B", 3.95, 40, 20, 128), _S("Qwen1.5-7B", 7.72, 32, 32, 128), _S("Qwen1.5-14B", 14.2, 40, 40, 128),
        _S("Qwen1.5-72B", 72.3, 80, 64, 128), _S("Qwen1.5-110B", 111.2, 80, 8, 128),
    ),
    "Qwen3ForCausalLM": (
        _S("Qwen3-0.6B", 0.6, 28, 8, 128), _S("Qwen3-1.7B", 1.72, 28, 8, 128), _S("Qwen3-4B", 4.02, 36, 8, 128),
        _S("Qwen3-8B", 8.19, 36, 8, 128), _S("Qwen3-14B", 14.8, 40, 8, 128), _S("Qwen3-32B", 32.8, 64, 8, 128),
    ),
    "Qwen3MoeForCausalLM": (
        _S("Qwen3-30B-A3B", 30.5, 48, 4, 128, experts=True), _S("Qwen3-235B-A22B", 235.1, 94, 4, 128, experts=True),
        _S("Qwen3-Coder-480B", 480.2, 62, 8, 128, experts=True),
    ),
    "MistralForCausalLM": (
        _S("Mistral-7B", 7.24, 32, 8, 128), _S("Ministral-8B", 8.02, 36, 8, 128), _S("Mistral-Nemo", 12.25, 40, 8, 128),
        _S("Mistral-Small-22B", 22.2, 56, 8, 128), _S("Mistral-Small-24B", 23.6, 40, 8, 128),
        _S("Mistral-Large", 122.6, 88, 8, 128),
    ),
    "MixtralForCausalLM": (
        _S("Mixtral-8x7B", 46.7, 32, 8, 128, experts=True), _S("Mixtral-8x22B", 140.6, 56, 8, 128, experts=True),
    ),
    "Phi3ForCausalLM": (
        _S("Phi-3-mini", 3.82, 32, 32, 96), _S("Phi-4-mini", 3.84, 32, 8, 128),
        _S("Phi-3-medium", 13.96, 40, 10, 128), _S("phi-4", 14.66, 40, 10, 128),
    ),
    "GemmaForCausalLM": (_S("Gemma-2B", 2.51, 18, 1, 256), _S("Gemma-7B", 8.54, 28, 16, 256)),
    "Gemma2ForCausalLM": (
        _S("Gemma-2-2B", 2.61, 26, 4, 256), _S("Gemma-2-9B", 9.24, 42, 8, 256), _S("Gemma-2-27B", 27.2, 46, 16, 128),
    ),
    "CohereForCausalLM": (_S("Command-R", 35.0, 40, 64, 128), _S("Command-R+", 103.8, 64, 8, 128)),
    "DbrxForCausalLM": (_S("DBRX", 131.6, 40, 8, 128, experts=True),),
    "DeepseekV2ForCausalLM": (
        _S("DeepSeek-V2-Lite", 15.7, 27, 0, 576, experts=True), _S("DeepSeek-V2", 235.7, 60, 0, 576, experts=True),
    ),
    "DeepseekV3ForCausalLM": (
        _S("Moonlight-16B", 16.0, 27, 0, 576, experts=True), _S("DeepSeek-V3", 671.0, 61, 0, 576, experts=True),
        _S("Kimi-K2", 1026.0, 61, 0, 576, experts=True),
    ),
})  # fmt: skip
"""Class as SGLang prints it -> its models."""


def bytes_per_token(
    model_class: str, weights_bytes: int | None, tp: int, kv_dtype: str | None = None,
    *, least: float | None = None, most: float | None = None,
) -> Guess | None:  # fmt: skip
    """Return what a token takes of the KV cache on one rank; None unless exactly one size fits.

    `weights_bytes` are those of all ranks together; `tp` is the number of ranks that share the heads (with
    data-parallel attention tp / dp). `least` and `most` bound the answer where the pool was seen: bytes over tokens.
    """
    width = BYTES_OF.get((kv_dtype or "auto").removeprefix("torch."))
    if weights_bytes is None or weights_bytes <= 0 or width is None or tp < 1:
        return None
    sizes: dict[int, list[Shape]] = {}
    for shape in SHAPES.get(model_class, ()):
        size = shape.bytes_per_token(tp, width)
        if shape.weighs(weights_bytes) and (least is None or size >= least) and (most is None or size <= most):
            sizes.setdefault(size, []).append(shape)
    if len(sizes) != 1:
        return None
    ((size, shapes),) = sizes.items()
    return Guess(size, " or ".join(shape.model for shape in shapes), _arithmetic(shapes[0], tp, width))


def _arithmetic(shape: Shape, tp: int, width: int) -> str:
    if not shape.kv_heads:
        return f"{shape.layers} layers x {shape.head} x {width} B"
    heads = max(1, shape.kv_heads // tp)
    return f"{shape.layers} layers x {heads} KV head{'s' if heads > 1 else ''} x {shape.head} x 2 x {width} B"
