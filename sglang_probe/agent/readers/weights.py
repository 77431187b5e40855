"""`weights.load`: which model, in which type, and SGLang's own figure for it; and the buffers of LoRA adapters."""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, number, tensor_bytes, text


def _begin(call: Call) -> Attributes:
    return {"part": "model"}


def _end(call: Call) -> Attributes:
    runner = call.instance
    config = getattr(runner, "model_config", None)
    model = getattr(runner, "model", None)
    return {
        "part": "model",
        "model_class": None if model is None else type(model).__name__,
        "dtype": text(getattr(runner, "dtype", None) or getattr(config, "dtype", None)),
        "quantization": text(getattr(config, "quantization", None)),
        "weight_load_mem_usage_gib": number(getattr(runner, "weight_load_mem_usage", None)),
    }


def _lora_begin(call: Call) -> Attributes:
    return {"part": "lora"}


def _lora_end(call: Call) -> Attributes:
    pool = call.instance
    buffers = [value for name, value in vars(pool).items() if name.endswith("_buffer")]
    return {"part": "lora", "dtype": text(getattr(pool, "dtype", None)), "bytes": _bytes_in(buffers)}


def _bytes_in(value: Any) -> int:
    """Return the bytes of all tensors in nested lists and mappings."""
    size = tensor_bytes(value)
    if size is not None:
        return size
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(_bytes_in(item) for item in inner)


LOAD = Reader(begin=_begin, end=_end)
LORA = Reader(begin=_lora_begin, end=_lora_end)
