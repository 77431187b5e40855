"""`kv.pool`: the pools as a whole, and each as it reports its own size."""

from __future__ import annotations

import re
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, gib_to_bytes, integer, number, tensor_bytes, text

_KINDS = {
    "ReqToTokenPool": "request",
    "DecodeReqToTokenPool": "request",
    "HybridReqToTokenPool": "request",
    "HybridMambaDecodeReqToTokenPool": "request",
    "MambaPool": "mamba",
    "SWAKVPool": "SWA",
    "HybridLinearKVPool": "hybrid",
}
_BY_NAME = re.compile(r"^(?:NPU)?([A-Za-z0-9]+?)TokenTo(?:KV|KOnly)?Pool")


def pool_kind(class_name: str) -> str:
    """Return the kind of a pool class: MHATokenToKVPoolFP4 -> MHA, ReqToTokenPool -> request."""
    match = _BY_NAME.match(class_name)
    return _KINDS.get(class_name) or (match[1] if match else class_name)


def _all_begin(call: Call) -> Attributes:
    return {"pool": "all"}


def _all_end(call: Call) -> Attributes:
    runner = call.instance
    profile = call.notes.get("profile", {})
    cell = call.notes.get("bytes_per_token") or profile.get("bytes_per_token")
    return {
        "pool": "all",
        "max_total_num_tokens": integer(getattr(runner, "max_total_num_tokens", None)),
        "full_max_total_num_tokens": integer(getattr(runner, "full_max_total_num_tokens", None)),
        "swa_max_total_num_tokens": integer(getattr(runner, "swa_max_total_num_tokens", None)),
        "max_running_requests": integer(getattr(runner, "max_running_requests", None)),
        "max_total_tokens_given": integer(getattr(getattr(runner, "server_args", None), "max_total_tokens", None)),
        "bytes_per_token": cell,
        "profiled_tokens": _profiled_tokens(profile, cell),
        "page_size": integer(getattr(runner, "page_size", None)),
        "dtype": text(getattr(runner, "kv_cache_dtype", None)),
    }


def _profiled_tokens(profile: Attributes, cell: int | None) -> int | None:
    result = profile.get("result")
    if result is None or profile["result_unit"] == "tokens":
        return integer(result)
    return int(result) // cell if cell else None


def _common(pool: Any) -> Attributes:
    name = type(pool).__name__
    return {
        "pool": pool_kind(name),
        "pool_class": name,
        "tokens": integer(getattr(pool, "size", None)),
        "dtype": text(getattr(pool, "dtype", None)),
        "page_size": integer(getattr(pool, "page_size", None)),
        "layers": integer(getattr(pool, "layer_num", None)),
    }


def _begin(call: Call) -> Attributes:
    name = type(call.instance).__name__
    return {"pool": pool_kind(name), "pool_class": name}


def _sized_end(call: Call) -> Attributes:
    """A KV pool: SGLang's own accounting of its buffers, the padding page included."""
    size = call.instance.get_kv_size_bytes()
    k, v = size if isinstance(size, tuple) else (None, None)
    total = k + v if k is not None and v is not None else size
    tokens = integer(call.arguments.get("num_tokens")) if "num_tokens" in call.arguments else None
    attributes = _common(call.instance) | {"bytes": number(total), "k_bytes": number(k), "v_bytes": number(v)}
    return attributes if tokens is None else attributes | {"tokens": tokens}


def _unsized_end(call: Call) -> Attributes:
    """A pool without that accounting (no-op, DeepSeek V4): its class and size, bytes unknown."""
    return _common(call.instance) | {"bytes": None}


def _request_end(call: Call) -> Attributes:
    return _common(call.instance) | {"bytes": tensor_bytes(getattr(call.instance, "req_to_token", None))}


def _mamba_end(call: Call) -> Attributes:
    return _common(call.instance) | {"bytes": gib_to_bytes(number(getattr(call.instance, "mem_usage", None)))}


ALL = Reader(begin=_all_begin, end=_all_end)
SIZED = Reader(begin=_begin, end=_sized_end)
UNSIZED = Reader(begin=_begin, end=_unsized_end)
REQUEST = Reader(begin=_begin, end=_request_end)
MAMBA = Reader(begin=_begin, end=_mamba_end)
