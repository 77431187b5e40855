"""Which recorded differences can be behind which part of the budget: one table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sglang_probe.explain.diff.arguments import field_of
from sglang_probe.explain.diff.model import Group, Row
from sglang_probe.explain.diff.provenance import counted

_SIZES: Final = r"|(tp|pp|dp|ep|attn_cp|moe_dp)_size"
_ARGUMENTS: Final[dict[str, str]] = {
    "fraction": r"mem_fraction_static",
    "communicators": r".*(nccl|symm_mem|mscclpp).*" + _SIZES,
    "world_group": r".*nccl.*" + _SIZES,
    "custom_allreduce": r".*(all_?reduce|symm_mem|mscclpp).*" + _SIZES,
    "weights": r"model_path|revision|quantization.*|dtype|load_format|cpu_offload.*|.*lora.*|.*experts?.*" + _SIZES,
    "weights_draft": r"speculative.*|model_path|dtype|quantization.*" + _SIZES,
    "deductions": r".*mamba.*|.*(multimodal|mm_).*|max_running_requests|speculative.*",
    "slack_floor": r".*mamba.*|disaggregation_mode|.*cuda_graph.*",
    "bytes_per_token": r"kv_cache_dtype|page_size|dtype|model_path|speculative.*" + _SIZES,
}
_OTHERS: Final[dict[str, tuple[tuple[Group, str], ...]]] = {
    "others": (("tenants", ".*"),),
    "others_late": (("tenants", ".*"),),
    "idle_free": (("tenants", ".*"), ("cards", "name|total"), ("visible devices", ".*")),
    "card": (("cards", "name|total|driver"), ("visible devices", ".*")),
    "context": (("versions", "torch|cuda"), ("cards", "name|driver"), ("variables", "CUDA_.*|PYTORCH_.*")),
    "world_group": (("versions", "nccl|torch"), ("variables", "NCCL_.*")),
    "communicators": (("versions", "nccl|torch"), ("variables", "NCCL_.*")),
    "custom_allreduce": (("functions", ".*all_?reduce.*"), ("variables", ".*ALL_?REDUCE.*")),
    "weights": (("functions", r".*load_model"), ("versions", "torch")),
    "weights_draft": (("functions", r".*load_model"),),
    "deductions": (("functions", r".*(mamba|profile).*"),),
    "slack_floor": (("functions", r".*profile.*"),),
    "own_term": (("functions", r".*profile.*"),),
    "bytes_per_token": (("functions", r".*cell_size.*"),),
}
_NOT_CODE: Final = frozenset({"others", "others_late", "card", "idle_free"})
"""Parts that no version of SGLang decides."""


def behind(part: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the counted rows that can be behind a part of the budget; where there is none, a changed SGLang."""
    own = part.partition(".")[0]
    found = tuple(row for row in counted(rows) if _is_behind(own, row))
    if found or own in _NOT_CODE:
        return found
    return tuple(row for row in counted(rows) if row.group == "sglang" and row.key != "path")


def _is_behind(part: str, row: Row) -> bool:
    if row.group in {"arguments given", "arguments effective"}:
        return re.fullmatch(_ARGUMENTS.get(part, ""), field_of(row.key)) is not None
    return any(row.group == group and re.fullmatch(key, row.key) for group, key in _OTHERS.get(part, ()))


def name_of(row: Row) -> str:
    """Return how a cause names a row of provenance."""
    return f"{row.group}: {row.key}"
