"""`scheduler.init` and the identity of processes: who is which rank, on which device."""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer
from sglang_probe.agent.readers.context import first_integer, published, read
from sglang_probe.agent.readers.ranks import rank_of


def _begin(call: Call) -> Attributes:
    arguments = call.arguments
    server_args = arguments.get("server_args")
    identity = call.agent.identity
    gpu_id = first_integer("gpu_id", arguments, arguments.get("ps"), published("get_device"))
    identity.rank = rank_of(arguments, server_args)
    device = getattr(server_args, "device", None) or read(published("get_device"), "device")
    identity.use_device(device, gpu_id)
    if call.target.path.startswith("Scheduler."):
        identity.role = "scheduler"
    call.agent.report_server_args(server_args)
    nnodes = first_integer("nnodes", server_args, published("get_parallel"))
    return {"gpu_id": gpu_id, "nnodes": nnodes}


def _end(call: Call) -> Attributes:
    call.agent.report_displaced()
    return {"max_total_num_tokens": integer(getattr(call.instance, "max_total_num_tokens", None))}


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
