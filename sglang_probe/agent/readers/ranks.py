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
        sizes = [first_integer(key, source) for source in (*sources, server_args) for key in size_keys]
        rank[name] = _part(part, sizes)
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
    grouped = attention is not None and attention > 1
    part = first_integer("attn_dp_rank", *sources) if grouped else None
    if part is None:  # in 0.5.20 the scheduler is given it before the context has it
        part = first_integer("dp_rank", *sources)
    names = ("attn_dp_size", "dp_size") if grouped else ("dp_size",)
    sizes = [first_integer(name, source) for name in names for source in (*sources, server_args)]
    return _part(part, sizes)


def _part(part: int | None, sizes: list[int | None]) -> dict[str, int] | None:
    """Return a rank with the first size that it can be of.

    What is published comes before the server's arguments: from 0.5.19 on these hold what was given, not what holds.
    """
    size = next((size for size in sizes if size is not None and part is not None and 0 <= part < size), None)
    return None if part is None or size is None else {"rank": part, "size": size}
