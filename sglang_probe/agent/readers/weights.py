"""`weights.load`: which model, in which type, and SGLang's own figure for it."""

from __future__ import annotations

from sglang_probe.agent.calls import Attributes, Call, Reader, number, text


def _end(call: Call) -> Attributes:
    runner = call.instance
    config = getattr(runner, "model_config", None)
    model = getattr(runner, "model", None)
    return {
        "model_class": None if model is None else type(model).__name__,
        "dtype": text(getattr(runner, "dtype", None) or getattr(config, "dtype", None)),
        "quantization": text(getattr(config, "quantization", None)),
        "weight_load_mem_usage_gib": number(getattr(runner, "weight_load_mem_usage", None)),
    }


LOAD = Reader(end=_end)
