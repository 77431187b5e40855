"""Which attention backend a flag names."""

from __future__ import annotations

from typing import Any


def backend(name: str, runner: Any) -> Any:
    """Return the backend of that name; every other name than `flashinfer` gets the Triton one."""
    if name == "flashinfer":
        from sglang.srt.layers.attention.flashinfer_backend import FlashInferAttnBackend

        return FlashInferAttnBackend(runner)
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    return TritonAttnBackend(runner)
