"""What two runs must have alike for the numbers of one to stand for the other's, and whether a token is latent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sglang_probe.explain.told import MOST_RANKS, Told, text
from sglang_probe.timeline.model import Run, Step

MLA: Final = frozenset(
    {
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Dots3NoteForCausalLM",
        "DotsVLMForCausalLM",
        "GigaChat35ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "HYV4ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiniCPM3ForCausalLM",
        "MistralLarge3ForCausalLM",
        "SarvamMLAForCausalLM",
    }
)
"""Models that SGLang gives a latent KV cache, by their class.

Source: the branches of `ModelConfig` (srt/configs/model_config.py) that set `AttentionArch.MLA`, 0.4.6.post5 to 0.5.23.
DeepseekVL2 and Pixtral are left out: of them the checkpoint's own configuration decides.
"""
_ALIASES: Final = {"bf16": "bfloat16", "half": "float16", "fp16": "float16", "fp32": "float32"}
_STORED: Final = frozenset({"uint8", "int8"})
"""Types that a pool stores others in."""


class Server(NamedTuple):
    """What a run was a start of; None: not known. The order is that in which differences are named."""

    model: str | None
    model_class: str | None
    tp: int | None
    pp: int | None
    dp: int | None
    dtype: str | None
    quantization: str | None
    kv_dtype: str | None
    speculative: str | None


_WORDS: Final = (
    "--model-path",
    "a model of class",
    "--tp",
    "--pp",
    "--dp",
    "weights of type",
    "--quantization",
    "KV dtype",
    "--speculative-algorithm",
)


def server_of(run: Run, kv_dtype: str | None = None) -> Server:
    """Return what a run says of itself; `kv_dtype`: of its pools, where they were built."""
    told, load = Told(run), _loaded(run)
    dtype = None if load is None else canonical(text(load.attributes.get("dtype")))
    asked = text(told.effective.get("kv_cache_dtype"))
    own = canonical(kv_dtype)
    return Server(
        model=text(told.effective.get("model_path")),
        model_class=None if load is None else text(load.attributes.get("model_class")),
        tp=told.count("tp_size", most=MOST_RANKS),
        pp=told.count("pp_size", most=MOST_RANKS),
        dp=told.count("dp_size", most=MOST_RANKS),
        dtype=dtype,
        quantization=_quantization(told, load),
        kv_dtype=own if own is not None and own not in _STORED else dtype if asked == "auto" else canonical(asked),
        speculative=(text(told.effective.get("speculative_algorithm")) or "none") if told.effective else None,
    )


def differences(one: Server, other: Server) -> Iterator[tuple[str, int | str | None, int | str | None]]:
    """Return in what two servers are known to differ: words for it, and both values."""
    for what, mine, theirs in zip(_WORDS, one, other, strict=True):
        if None not in (mine, theirs) and mine != theirs:
            yield what, mine, theirs


def is_latent(model_class: str | None) -> bool | None:
    """Say whether a model of this class has a latent KV cache (MLA), the same on every rank; None: not known."""
    return True if model_class in MLA else None


def canonical(dtype: str | None) -> str | None:
    """Return one name of a type: fp8_e4m3, torch.float8_e4m3fn -> float8_e4m3."""
    if dtype is None:
        return None
    name = dtype.removeprefix("torch.").removesuffix("fnuz").removesuffix("fn")
    return _ALIASES.get(name, name.replace("fp8_", "float8_"))


def _loaded(run: Run) -> Step | None:
    """Return the first load of the target's weights that said what it loaded."""
    loads = (
        step
        for process in run.processes
        for step in process.steps
        if step.phase == "weights.load" and step.worker != "draft" and step.attributes.get("part") != "lora"
    )
    return next((step for step in loads if text(step.attributes.get("dtype"))), None)


def _quantization(told: Told, load: Step | None) -> str | None:
    if load is not None and "quantization" in load.attributes:
        return text(load.attributes["quantization"]) or "none"
    return text(told.effective.get("quantization"))
