"""`kv.pool`: the pools as a whole, and each as it reports its own size."""

from __future__ import annotations

import re
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, gib_to_bytes, integer, number, tensor_bytes, text
from sglang_probe.agent.readers.context import first_integer, published

_KINDS = {
    "ReqToTokenPool": "request",
    "DecodeReqToTokenPool": "request",
    "HybridReqToTokenPool": "request",
    "HybridMambaDecodeReqToTokenPool": "request",
    "MambaPool": "mamba",
    "SWAKVPool": "SWA",
    "HybridLinearKVPool": "hybrid",
    "UnifiedKVPool": "unified",
}
_BY_NAME = re.compile(r"^(?:NPU)?([A-Za-z0-9]+?)TokenTo(?:KV|KOnly)?Pool")


def pool_kind(class_name: str) -> str:
    """Return the kind of a pool class: MHATokenToKVPoolFP4 -> MHA, ReqToTokenPool -> request."""
    match = _BY_NAME.match(class_name)
    return _KINDS.get(class_name) or (match[1] if match else class_name)


def _all_begin(call: Call) -> Attributes:
    return {"pool": "all"}


def _all_end(call: Call) -> Attributes:
    # A configurator returns what a runner keeps.
    runner = call.instance if hasattr(call.instance, "max_total_num_tokens") or call.result is None else call.result
    profile = call.notes.get("profile", {})
    cell = call.notes.get("bytes_per_token") or profile.get("bytes_per_token")
    return {
        "pool": "all",
        "max_total_num_tokens": integer(getattr(runner, "max_total_num_tokens", None)),
        "full_max_total_num_tokens": integer(getattr(runner, "full_max_total_num_tokens", None)),
        "swa_max_total_num_tokens": integer(getattr(runner, "swa_max_total_num_tokens", None)),
        "max_running_requests": integer(getattr(runner, "max_running_requests", None)),
        "max_total_tokens_given": _cap(call.instance),
        "bytes_per_token": cell,
        "profiled_tokens": _profiled_tokens(profile, cell),
        "page_size": integer(getattr(runner, "page_size", None)),
        "dtype": text(getattr(runner, "kv_cache_dtype", None)),
        "post_capture": _post_capture(call.instance),
    }


def _cap(owner: Any) -> int | None:
    """Return --max-total-tokens as it is in force: in the arguments, or in the bag that replaced them (0.5.17 on)."""
    return first_integer("max_total_tokens", getattr(owner, "server_args", None), published("get_schedule"))


def _post_capture(owner: Any) -> bool | None:
    """Return whether the sizes are addresses alone until graphs are captured (0.5.16 on)."""
    for holder in (owner, getattr(owner, "kv_cache_configurator", None)):
        active = getattr(holder, "post_capture_kv_active", None)
        if isinstance(active, bool):
            return active
    return None


def _resized_end(call: Call) -> Attributes:
    return _all_end(call) | {"resized": True}


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
        "pool_id": f"{id(pool):x}",  # a pool that is resized reports itself again
    }


def _begin(call: Call) -> Attributes:
    name = type(call.instance).__name__
    return {"pool": pool_kind(name), "pool_class": name}


def _sized_end(call: Call) -> Attributes:
    """A KV pool: SGLang's own accounting of its buffers, the padding page included."""
    size = call.instance.get_kv_size_bytes()
    k, v = size if isinstance(size, tuple) else (None, None)
    total = number(k + v if k is not None and v is not None else size)
    tokens = integer(call.arguments.get("num_tokens")) if "num_tokens" in call.arguments else None
    attributes = _common(call.instance) | {"bytes": total, "k_bytes": number(k), "v_bytes": number(v)}
    window = getattr(call.instance, "swa_kv_pool", None)
    if window is not None:  # both halves report themselves, and look alike
        attributes["window_pool_id"] = f"{id(window):x}"
    if _is_addresses(call.instance):  # its tensors' sizes are what it may grow to
        attributes |= _backed(call.instance) | {"reserved_bytes": total, "k_bytes": None, "v_bytes": None}
    return attributes if tokens is None else attributes | {"tokens": tokens}


def _is_addresses(pool: Any) -> bool:
    return getattr(pool, "post_capture_active", False) is True


def _backed(pool: Any) -> Attributes:
    return {"bytes": number(getattr(pool, "post_capture_backed_bytes", None))}


def _backed_end(call: Call) -> Attributes:
    tokens = integer(next(iter(call.arguments.values()), None))  # final_num_tokens
    return _common(call.instance) | _backed(call.instance) | {"tokens": tokens}


def _unsized_end(call: Call) -> Attributes:
    """A pool without that accounting (no-op, DeepSeek V4): its class and size, bytes unknown."""
    return _common(call.instance) | {"bytes": None}


def _request_end(call: Call) -> Attributes:
    return _common(call.instance) | {"bytes": tensor_bytes(getattr(call.instance, "req_to_token", None))}


def _mamba_end(call: Call) -> Attributes:
    return _common(call.instance) | {"bytes": gib_to_bytes(number(getattr(call.instance, "mem_usage", None)))}


def _unified_end(call: Call) -> Attributes:
    total = integer(getattr(call.instance, "total_bytes", None))
    attributes = _common(call.instance) | {"bytes": total}
    if _is_addresses(call.instance):
        owner = getattr(call.instance, "_post_capture_owner", None)
        attributes |= {"bytes": integer(getattr(owner, "backed_bytes", None)), "reserved_bytes": total}
    return attributes


ALL = Reader(begin=_all_begin, end=_all_end)
RESIZED = Reader(begin=_all_begin, end=_resized_end)
SIZED = Reader(begin=_begin, end=_sized_end)
UNSIZED = Reader(begin=_begin, end=_unsized_end)
BACKED = Reader(begin=_begin, end=_backed_end)
UNIFIED = Reader(begin=_begin, end=_unified_end)
REQUEST = Reader(begin=_begin, end=_request_end)
MAMBA = Reader(begin=_begin, end=_mamba_end)
