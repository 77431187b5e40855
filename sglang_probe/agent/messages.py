"""The one short sentence of a memory event, its figures in GiB."""

from __future__ import annotations

from typing import Any

from sglang_probe.events.names import GIB


def of_call(role: str, kind: str, attributes: dict[str, Any], fields: dict[str, Any]) -> str:
    """Return the message of a memory event: `weights.load ended, cost 4.250 GiB, 134.030 GiB free`."""
    what = " ".join(part for part in (role, _what(attributes)) if part)
    if kind == "begin":
        return f"{what} begins, {_free(fields.get('before'))}"
    if kind == "sample":
        size = attributes.get("bytes")
        return what if size is None else f"{what} is {_gib(size)}, {attributes.get('tokens')} tokens"
    free = _free(fields.get("after"))
    if kind == "error":
        return f"{what} raised {(fields.get('exception') or {}).get('type')}, {free}"
    spent = (fields.get("delta") or {}).get("device_free_bytes")
    cost = "cost unknown" if spent is None else f"cost {_gib(-spent)}"
    return f"{what} ended, {cost}, {free}{_result(role, attributes)}"


def _what(attributes: dict[str, Any]) -> str:
    for key in ("communicator", "buffer_kind", "class", "pool", "graph"):
        value = attributes.get(key)
        if value:
            return str(value)
    return ""


def _result(role: str, attributes: dict[str, Any]) -> str:
    if role == "kv.profile" and attributes.get("result") is not None:
        rest = attributes.get("rest_bytes")
        return f", rest {_gib(rest)}, result {attributes['result']} {attributes['result_unit']}"
    if role == "dist.init" and attributes.get("pre_load_gib") is not None:
        return f", pre-load memory {attributes['pre_load_gib']:.3f} GiB"
    return ""


def _free(reading: dict[str, Any] | None) -> str:
    free = (reading or {}).get("device_free_bytes")
    return "free unknown" if free is None else f"{_gib(free)} free"


def _gib(count: int | float | None) -> str:
    return "unknown" if count is None else f"{count / GIB:.3f} GiB"
