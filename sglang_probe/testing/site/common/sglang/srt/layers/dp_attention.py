"""Data parallelism of the attention layers: only the groups it gives."""

from __future__ import annotations

from typing import Any

from sglang.srt.distributed.parallel_state import GroupCoordinator, get_attn_cp_group, get_attn_tp_group


def initialize_dp_attention(server_args: Any, model_config: Any) -> None:
    """Prepare nothing: the groups exist."""


def get_attention_tp_group() -> GroupCoordinator:
    return get_attn_tp_group()


def get_attention_tp_size() -> int:
    return get_attn_tp_group().world_size


def get_attention_cp_group() -> GroupCoordinator:
    return get_attn_cp_group()
