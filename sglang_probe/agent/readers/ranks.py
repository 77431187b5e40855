"""The ranks of a process, from wherever its release keeps them.

Up to 0.5.20 they are arguments of the scheduler, from 0.5.16 to 0.5.20 the runner is given them in one object (`ps`),
from 0.5.21 on they are published in SGLang's runtime context before the scheduler is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_probe.agent.readers.context import first_integer, published

_SIZES = {
    "pp": ("pp_rank", ("pp_size",)),
    "attn_cp": ("attn_cp_rank", ("attn_cp_size",)),
    "moe_dp": ("moe_dp_rank", ("moe_dp_size",)),
    "tp": ("tp_rank", ("tp_size",)),
    "ep": ("moe_ep_rank", ("ep_size", "moe_ep_size")),
}
"""Dimension of the envelope -> SGLang's name of the rank, and its names of the size."""


def rank_of(arguments: Mapping[str, Any], server_args: Any) -> dict[str, Any]:
    """Return the envelope's `rank` from the arguments of a scheduler or a model runner and the server's arguments."""
    sources = (arguments, arguments.get("ps"), published("get_parallel"))
    rank: dict[str, Any] = {"dp": _replica(sources, server_args)}
    for name, (rank_key, size_keys) in _SIZES.items():
        part = first_integer(rank_key, *sources)
        sizes = (first_integer(key, server_args, *sources) for key in size_keys)
        size = next((size for size in sizes if size), None)
        rank[name] = None if part is None or size is None else {"rank": part, "size": size}
    tp, pp = rank["tp"], rank["pp"]
    if tp is not None:
        stage, stages = (pp["rank"], pp["size"]) if pp is not None else (0, 1)
        rank["world"] = {"rank": stage * tp["size"] + tp["rank"], "size": stages * tp["size"]}
    else:
        rank["world"] = None
    rank["node"] = first_integer("node_rank", server_args, published("get_parallel"))
    return rank


def _replica(sources: tuple[Any, ...], server_args: Any) -> dict[str, int] | None:
    """Return the data-parallel rank; where the groups of DP attention are counted apart (0.5.16 on), theirs."""
    attention = first_integer("attn_dp_size", *sources)
    if attention is not None and attention > 1:
        part = first_integer("attn_dp_rank", *sources)
        return None if part is None else {"rank": part, "size": attention}
    part = first_integer("dp_rank", *sources)
    size = first_integer("dp_size", server_args, *sources)
    return None if part is None or not size else {"rank": part, "size": size}
