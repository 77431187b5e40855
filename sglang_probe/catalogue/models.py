"""Shapes of common models: what a token takes of the KV cache, told from a model's class and the size of its weights.

SGLang prints the class (`Load weight end. type=Qwen2ForCausalLM`), never the shape. The shapes are facts of the models'
published configs: layers, KV heads, size of a head; or, with MLA, the size of the latent vector (`kv_lora_rank` +
`qk_rope_head_dim`), which every rank keeps whole. A class has many models, also some that are not listed here: what is
found is assumed, and the name of the model goes with it.

    MHA, GQA: layers x max(1, KV heads / tp) x size of a head x 2 (K and V) x bytes of the dtype
    MLA:      layers x latent x bytes of the dtype
Worked example: Qwen2-72B with tp 8: 80 x 1 x 128 x 2 x 2 = 40960 B; DeepSeek-V3 with any tp: 61 x 576 x 2 = 70272 B.

How the table was checked: each row's shape against a published `config.json` (of the model itself, or of a quantized or
fine-tuned copy), or against what other projects derived from it (trainers, simulators, a model's documentation); where
two disagreed, the one whose parameters add up to the published count. The parameters are what the shape, the hidden and
intermediate sizes, the experts, the vocabulary (once where the config ties the output to it, as SGLang does from 0.4.0
on) and a vision tower add up to, without a layer of multi-token prediction, which the target does not load. That a
class is SGLang's says `EntryClass` of 0.2.0 to 0.5.23.

Left out are models whose tokens take no plain product: hybrid pools of a sliding window (Llama 4, from 0.4.9 on where
asked for; it, gpt-oss and others from 0.5.8 on), linear attention (Qwen3-Next, Qwen3.5), sparse attention with an index
(DeepSeek-V3.2, GLM-5, MiniMax-M3); and GLM-4-32B, which has 2 or 8 KV heads in about one size and one class. Gemma 2
and 3 have windows, but no release gives them a pool of their own. Without MLA (before 0.2.10; until 0.3.1.post1 without
--enable-mla, until 0.4.5.post1 with --disable-mla) the DeepSeek models keep whole heads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

BYTES_OF: Final[Mapping[str, int]] = MappingProxyType({
    "auto": 2, "bfloat16": 2, "float16": 2, "fp8_e5m2": 1, "fp8_e4m3": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
})  # fmt: skip
"""KV dtype -> bytes. `auto` is the model's own, which is one of 16 bits in every release."""
WIDTHS: Final[Mapping[int, tuple[float, float]]] = MappingProxyType({16: (1.97, 2.07), 8: (0.97, 1.18), 4: (0.5, 0.75)})
"""Bits -> bytes that a parameter takes on the devices, with what stays in 16 bits (embeddings, scales)."""
PLAIN: Final = (16,)
"""The bits of weights that are not quantized."""
QUANTIZED: Final = (8, 4)
"""The bits of those that are."""
MOST_WITH_EXPERTS: Final = 2.40
"""Bytes of a parameter of a mixture of experts: data-parallel attention and shared experts are kept more than once."""


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
    bits: int = 16
    """The least bits that the model itself is published in: a checkpoint of these needs no --quantization."""

    def bytes_per_token(self, tp: int, width: int) -> int:
        """Return what a token takes on each of `tp` ranks that share the heads, in a dtype of `width` bytes."""
        if not self.kv_heads:
            return self.layers * self.head * width
        return self.layers * max(1, self.kv_heads // tp) * self.head * 2 * width

    def weighs(self, weights_bytes: int, bits: Collection[int] | None = None) -> bool:
        """Say whether all its weights together can be so large, in one of these bits; None: in those it comes in."""
        ratio = weights_bytes / (self.billions * 1e9)
        bounds = [WIDTHS[one] for one in bits or (*PLAIN, self.bits)]
        if self.experts:
            return min(bounds)[0] <= ratio <= MOST_WITH_EXPERTS
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
        _S("Llama-2-7B", 6.738, 32, 32, 128), _S("Llama-2-13B", 13.02, 40, 40, 128),
        _S("Llama-2-70B", 68.98, 80, 8, 128), _S("Llama-3-8B", 8.030, 32, 8, 128), _S("Llama-3-70B", 70.55, 80, 8, 128),
        _S("Llama-3.1-405B", 405.8, 126, 8, 128), _S("Llama-3.2-1B", 1.236, 16, 8, 64),
        _S("Llama-3.2-3B", 3.213, 28, 8, 128), _S("CodeLlama-34B", 33.74, 48, 8, 128), _S("Yi-34B", 34.39, 60, 8, 128),
        _S("Yi-6B", 6.061, 32, 4, 128), _S("DeepSeek-LLM-7B", 6.910, 30, 32, 128),
        _S("DeepSeek-LLM-67B", 67.42, 95, 8, 128), _S("DeepSeek-Coder-33B", 33.34, 62, 8, 128),
        _S("TinyLlama-1.1B", 1.100, 22, 4, 64),
    ),
    "Qwen2ForCausalLM": (
        _S("Qwen2.5-0.5B", 0.494, 24, 2, 64), _S("Qwen2.5-1.5B", 1.544, 28, 2, 128),
        _S("Qwen2.5-3B", 3.086, 36, 2, 128), _S("Qwen2.5-7B", 7.615, 28, 4, 128), _S("Qwen2.5-14B", 14.77, 48, 8, 128),
        _S("Qwen2.5-32B", 32.76, 64, 8, 128), _S("Qwen2-72B", 72.70, 80, 8, 128), _S("Qwen1.5-0.5B", 0.464, 24, 16, 64),
        _S("Qwen1.5-1.8B", 1.837, 24, 16, 128), _S("Qwen1.5-4B", 3.950, 40, 20, 128),
        _S("Qwen1.5-7B", 7.721, 32, 32, 128), _S("Qwen1.5-14B", 14.17, 40, 40, 128),
        _S("Qwen1.5-72B", 72.28, 80, 64, 128), _S("Qwen1.5-110B", 111.2, 80, 8, 128),
    ),
    "Qwen3ForCausalLM": (
        _S("Qwen3-0.6B", 0.596, 28, 8, 128), _S("Qwen3-1.7B", 1.720, 28, 8, 128), _S("Qwen3-4B", 4.022, 36, 8, 128),
        _S("Qwen3-8B", 8.190, 36, 8, 128), _S("Qwen3-14B", 14.77, 40, 8, 128), _S("Qwen3-32B", 32.76, 64, 8, 128),
    ),
    "Qwen3MoeForCausalLM": (
        _S("Qwen3-30B-A3B", 30.53, 48, 4, 128, experts=True), _S("Qwen3-235B-A22B", 235.1, 94, 4, 128, experts=True),
        _S("Qwen3-Coder-480B", 480.2, 62, 8, 128, experts=True),
    ),
    "MistralForCausalLM": (
        _S("Mistral-7B", 7.241, 32, 8, 128), _S("Ministral-8B", 8.020, 36, 8, 128),
        _S("Mistral-Nemo", 12.25, 40, 8, 128), _S("Mistral-Small-22B", 22.25, 56, 8, 128),
        _S("Mistral-Small-24B", 23.57, 40, 8, 128), _S("Mistral-Large", 122.6, 88, 8, 128),
    ),
    "MixtralForCausalLM": (
        _S("Mixtral-8x7B", 46.70, 32, 8, 128, experts=True), _S("Mixtral-8x22B", 140.6, 56, 8, 128, experts=True),
    ),
    "Phi3ForCausalLM": (
        _S("Phi-3-mini", 3.821, 32, 32, 96), _S("Phi-4-mini", 3.836, 32, 8, 128),
        _S("Phi-3-medium", 13.96, 40, 10, 128), _S("phi-4", 14.66, 40, 10, 128),
    ),
    "GemmaForCausalLM": (_S("Gemma-2B", 2.506, 18, 1, 256), _S("Gemma-7B", 8.538, 28, 16, 256)),
    "Gemma2ForCausalLM": (
        _S("Gemma-2-2B", 2.614, 26, 4, 256), _S("Gemma-2-9B", 9.241, 42, 8, 256), _S("Gemma-2-27B", 27.23, 46, 16, 128),
    ),
    "Gemma3ForCausalLM": (_S("Gemma-3-1B", 1.000, 26, 1, 256),),
    "Gemma3ForConditionalGeneration": (
        _S("Gemma-3-4B", 4.300, 34, 4, 256), _S("Gemma-3-12B", 12.19, 48, 8, 256),
        _S("Gemma-3-27B", 27.43, 62, 16, 128),
    ),
    "CohereForCausalLM": (
        _S("Command-R", 34.98, 40, 64, 128), _S("Command-R-08-2024", 32.30, 40, 8, 128),
        _S("Command-R+", 103.8, 64, 8, 128),
    ),
    "DbrxForCausalLM": (_S("DBRX", 131.6, 40, 8, 128, experts=True),),
    "Glm4ForCausalLM": (_S("GLM-4-9B-0414", 9.399, 40, 2, 128),),
    "Glm4MoeForCausalLM": (
        _S("GLM-4.5-Air", 106.9, 46, 8, 128, experts=True), _S("GLM-4.5", 352.8, 92, 8, 128, experts=True),
    ),
    "Glm4MoeLiteForCausalLM": (_S("GLM-4.7-Flash", 29.94, 47, 0, 576, experts=True),),
    "MiniMaxM2ForCausalLM": (_S("MiniMax-M2.5", 228.7, 62, 8, 128, experts=True, bits=8),),
    "DeepseekV2ForCausalLM": (
        _S("DeepSeek-V2-Lite", 15.71, 27, 0, 576, experts=True), _S("DeepSeek-V2", 235.7, 60, 0, 576, experts=True),
    ),
    "DeepseekV3ForCausalLM": (
        _S("Moonlight-16B", 15.96, 27, 0, 576, experts=True),
        _S("DeepSeek-V3", 671.0, 61, 0, 576, experts=True, bits=8),
        _S("Kimi-K2", 1026.4, 61, 0, 576, experts=True, bits=8),
    ),
})  # fmt: skip
"""Class as SGLang prints it -> its models."""


def bytes_per_token(
    model_class: str, weights_bytes: int | None, tp: int, kv_dtype: str | None = None,
    *, least: float | None = None, most: float | None = None, bits: Collection[int] | None = None, mla: bool = True,
) -> Guess | None:  # fmt: skip
    """Return what a token takes of the KV cache on one rank; None unless exactly one size fits.

    `weights_bytes` are those of all ranks together; `tp` is the number of ranks that share the heads (with
    data-parallel attention tp / dp). `least` and `most` bound the answer where the pool was seen: bytes over tokens.
    `bits` are those that a parameter may have; None where nothing is known: then a model is one only in what it is
    published in, as 8 or 4 bits fit the weights of many a model that is not listed. `mla` says whether MLA is on.
    """
    width = BYTES_OF.get((kv_dtype or "auto").removeprefix("torch."))
    if weights_bytes is None or weights_bytes <= 0 or width is None or tp < 1:
        return None
    sizes: dict[int, list[Shape]] = {}
    for shape in SHAPES.get(model_class, ()):
        size = shape.bytes_per_token(tp, width)
        inside = (least is None or size >= least) and (most is None or size <= most)
        if inside and shape.weighs(weights_bytes, bits) and (mla or shape.kv_heads):
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
