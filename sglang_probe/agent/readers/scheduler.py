"""`scheduler.init` and the identity of processes: who is which rank, on which device."""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer

_SIZES = {
    "dp": ("dp_rank", "dp_size"),
    "pp": ("pp_rank", "pp_size"),
    "attn_cp": ("attn_cp_rank", "attn_cp_size"),
    "moe_dp": ("moe_dp_rank", "moe_dp_size"),
    "tp": ("tp_rank", "tp_size"),
    "ep": ("moe_ep_rank", "ep_size"),
}


def _begin(call: Call) -> Attributes:
    arguments = call.arguments
    server_args = arguments.get("server_args")
    identity = call.agent.identity
    gpu_id = integer(arguments.get("gpu_id"))
    identity.rank = rank_of(arguments, server_args)
    identity.use_device(getattr(server_args, "device", None), gpu_id)
    if call.target.path.startswith("Scheduler."):
        identity.role = "scheduler"
    call.agent.report_server_args(server_args)
    return {"gpu_id": gpu_id, "nnodes": integer(getattr(server_args, "nnodes", None))}


def _end(call: Call) -> Attributes:
    call.agent.report_displaced()
    return {"max_total_num_tokens": integer(getattr(call.instance, "max_total_num_tokens", None))}


def rank_of(arguments: dict[str, Any], server_args: Any) -> dict[str, Any]:
    """Return the envelope's `rank` from the arguments of a scheduler or a model runner and the server's arguments."""
    rank: dict[str, Any] = {}
    for name, (rank_key, size_key) in _SIZES.items():
        part = integer(arguments.get(rank_key))
        size = integer(getattr(server_args, size_key, None)) or integer(arguments.get(size_key))
        rank[name] = None if part is None or size is None else {"rank": part, "size": size}
    tp, pp = rank["tp"], rank["pp"]
    if tp is not None:
        stage, stages = (pp["rank"], pp["size"]) if pp is not None else (0, 1)
        rank["world"] = {"rank": stage * tp["size"] + tp["rank"], "size": stages * tp["size"]}
    else:
        rank["world"] = None
    rank["node"] = integer(getattr(server_args, "node_rank", None))
    return rank


def _role(call: Call) -> Attributes:
    role = _ROLES[call.target.path.partition(".")[0]]
    identity = call.agent.identity
    # The launcher runs the tokenizer manager itself: it stays the launcher.
    if identity.role == "other":
        identity.role = role
        call.agent.report_role(call)
    return {}


_ROLES: dict[str, Any] = {
    "DetokenizerManager": "detokenizer",
    "DataParallelController": "dp_controller",
    "TokenizerManager": "tokenizer",
}

ROOT = Reader(begin=_begin, end=_end)
PROCESS_ROLE = Reader(begin=_role)
