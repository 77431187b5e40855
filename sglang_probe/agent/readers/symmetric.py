"""`allreduce.buffers` of the other classes: quick, symmetric memory, PCIe, multicast gather, the fused workspace.

Sizes are read from the buffers themselves, or taken from what the library is asked for. Where neither is visible from
Python, they are null, and the step's own delta tells.
"""

from __future__ import annotations

import sys
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer, tensor_bytes
from sglang_probe.agent.readers.allreduce import asked, begin, common, why_disabled

_FUSED_KINDS = ("buffer", "flag", "lamport")
_METADATA = tuple(f"{kind}_size" for kind in ("buffer", "flag", "lamport_buffer"))


def _quick_end(call: Call) -> Attributes:
    attributes = common(call)
    largest = integer(getattr(call.instance, "qr_max_size", None))
    if attributes["disabled"] is not False or largest is None:
        return attributes | asked([], None)
    attributes["max_size_bytes"] = largest
    return attributes | asked([{"kind": "data", "bytes": 2 * largest}, {"kind": "flags", "bytes": None}], "ipc")


def _tensor_end(call: Call) -> Attributes:
    attributes = common(call)
    size = tensor_bytes(getattr(call.instance, "buffer", None))
    return attributes | asked([] if size is None else [{"kind": "data", "bytes": size}], "vmm")


def _pcie_end(call: Call) -> Attributes:
    attributes = common(call)
    elements = integer(getattr(call.instance, "max_numel", None))
    workspace = getattr(call.instance, "_workspace", None)
    if workspace is None or not elements:
        return attributes | asked([], None)
    return attributes | asked([{"kind": "data", "bytes": 2 * elements}, {"kind": "signals", "bytes": None}], "ipc")


def _gather_end(call: Call) -> Attributes:
    attributes = common(call)
    size = tensor_bytes(getattr(call.result, "comm_buff", None))
    attributes["class"] = "MultimemAllGatherer"
    attributes["world_size"] = integer(getattr(call.result, "world_size", None))
    attributes["group_rank"] = integer(getattr(call.result, "rank_in_group", None))
    attributes["disabled"] = call.error is not None
    attributes["disabled_reason"] = None if call.error is None else f"{type(call.error).__name__}: {call.error}"
    return attributes | asked([] if size is None else [{"kind": "data", "bytes": size}], "vmm")


def _fused_begin(call: Call) -> Attributes:
    call.notes["before"] = _workspace(call.instance)
    return begin(call)


def _workspace(manager: Any) -> Any:
    found = getattr(manager, "workspace", None)
    return getattr(manager, "workspace_tensor", None) if found is None else found


def _fused_end(call: Call) -> Attributes:
    listener = call.notes.get("listener")
    attributes = common(call)
    manager, workspace = call.instance, _workspace(call.instance)
    attributes["disabled"] = not getattr(manager, "initialized", False)
    if attributes["disabled"]:
        attributes["disabled_reason"] = why_disabled(listener)
        return attributes | asked([], None)
    if workspace is None or workspace is call.notes["before"]:  # it was there already
        return attributes | asked([], None)
    sharing = "vmm" if getattr(workspace, "mem_handles", None) else "ipc"
    return attributes | asked(_fused_buffers(call, workspace), sharing)


def _fused_buffers(call: Call, workspace: Any) -> list[dict[str, Any]]:
    sizes: list[int | None] = list(call.notes.get("sizes") or ())
    if getattr(workspace, "backend", "trtllm") != "trtllm":
        return [{"kind": "workspace", "bytes": None}]
    if len(sizes) != len(_FUSED_KINDS):
        metadata = getattr(workspace, "metadata", None)
        sizes = [integer(metadata.get(name)) if isinstance(metadata, dict) else None for name in _METADATA]
    return [{"kind": kind, "bytes": size} for kind, size in zip(_FUSED_KINDS, sizes, strict=True)]


def _fused_sizes(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "allreduce.buffers" and isinstance(call.result, (list, tuple)):
        around.notes["sizes"] = [integer(size) for size in call.result]
    return {}


def _pool_end(call: Call) -> Attributes:
    """NCCL's pool is asked for in GiB by a variable, and only where --enable-symm-mem is given: the delta tells."""
    attributes = common(call) | {"class": "NcclSymmetricMemoryPool"}
    wanted = _enabled(call)
    attributes["disabled"] = None if wanted is None else not wanted
    attributes["disabled_reason"] = "not asked for (--enable-symm-mem), or a draft's" if wanted is False else None
    size = _prealloc_bytes() if wanted else None
    return attributes | asked([] if size is None else [{"kind": "pool", "bytes": size}], "vmm")


def _enabled(call: Call) -> bool | None:
    arguments = call.arguments
    server_args = getattr(call.instance, "server_args", None)
    flag = arguments.get("enable_symm_mem", getattr(server_args, "enable_symm_mem", None))
    draft = arguments.get("is_draft_worker", getattr(call.instance, "is_draft_worker", False))
    return None if flag is None else bool(flag) and not draft and (_prealloc_bytes() or 0) > 0


def _prealloc_bytes() -> int | None:
    environ = getattr(sys.modules.get("sglang.srt.environ"), "envs", None)
    variable = getattr(environ, "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE", None)
    size = integer(variable.get()) if variable is not None else None
    return None if size is None else size << 30


QUICK = Reader(begin=begin, end=_quick_end)
SYMM_MEM = Reader(begin=begin, end=_tensor_end)
PCIE_IPC = Reader(begin=begin, end=_pcie_end)
MULTIMEM = Reader(begin=begin, end=_gather_end)
FUSED = Reader(begin=_fused_begin, end=_fused_end)
FUSED_SIZES = Reader(end=_fused_sizes)
NCCL_POOL = Reader(begin=begin, end=_pool_end)
