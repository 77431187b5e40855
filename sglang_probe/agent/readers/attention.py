"""`attention.init`: the backend and the workspace it keeps."""

from __future__ import annotations

import sys
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, tensor_bytes, text

# A buffer shared by all instances of a module's backend, made with the first (0.4.3 to 0.5.15).
_SHARED_WORKSPACES = tuple(
    f"sglang.srt.layers.attention.{name}" for name in ("flashinfer_backend", "flashinfer_mla_backend")
)


def _end(call: Call) -> Attributes:
    runner = call.instance
    backend = getattr(runner, "attn_backend", None)
    return {
        "backend": None if backend is None else type(backend).__name__,
        "prefill_backend": text(getattr(runner, "prefill_attention_backend_str", None)),
        "decode_backend": text(getattr(runner, "decode_attention_backend_str", None)),
        "workspace_bytes": _workspace(backend),
    }


def _workspace(backend: Any) -> int | None:
    own = tensor_bytes(getattr(backend, "workspace_buffer", None))
    if own is not None:
        return own
    module = sys.modules.get(type(backend).__module__)
    if module is None or module.__name__ not in _SHARED_WORKSPACES:
        return None
    return tensor_bytes(getattr(module, "global_workspace_buffer", None))


INIT = Reader(end=_end)
