"""`allreduce.buffers` of the second family.

Up to 0.5.15 one `cudaMalloc` in C++ holds everything, shared over CUDA IPC: what it takes follows from the numbers that
it was given. From 0.5.16 a slab of torch's symmetric memory (VMM, outside torch's caching allocator) and two tensors,
whose sizes are read.
Source: SGLang's `jit_kernel/all_reduce.py` and its kernels, 0.5.10 to 0.5.15; `custom_all_reduce_v2.py` from 0.5.16.
"""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer, tensor_bytes
from sglang_probe.agent.readers.allreduce import asked, begin, common

_LINE = 128
"""Bytes to which the C++ object rounds its parts, and that one signal takes."""
_GRAPH_INPUTS = 131072
_POINTERS = 64
"""Bytes of the pointers to one input: eight, whatever the group's size."""

Buffer = dict[str, Any]


def _end(call: Call) -> Attributes:
    attributes = common(call)
    if attributes["disabled"] is not False:
        return attributes | asked([], None)
    if hasattr(call.instance, "_symm_tensor"):
        return attributes | asked(_symmetric(call.instance, attributes["world_size"]), "vmm")
    return attributes | asked(_one_allocation(call, attributes["world_size"]), "ipc")


def _one_allocation(call: Call, world: int | None) -> list[Buffer]:
    instance = call.instance
    push = integer(getattr(instance, "max_push_size", None))
    # Every peer has a slot of its own, twice over, so that one all-reduce can begin while the last one is read.
    slots = None if push is None or world is None else _up(2 * world * push)
    return [
        {"kind": "pull", "bytes": integer(getattr(instance, "max_pull_size", None))},
        {"kind": "push", "bytes": slots},
        *_signals(call),
    ]


def _signals(call: Call) -> list[Buffer]:
    pulls, pushes = _blocks(call)
    later = hasattr(call.instance, "max_size")  # from 0.5.11 on the parts are packed and rounded
    signals: int | None = None
    if pulls is not None and pushes is not None:
        signals = _LINE * pulls + (_up(4 * pushes) if later else _LINE * pushes)
    graph = (1 + _GRAPH_INPUTS) * _POINTERS
    known = pulls is not None
    return [
        {"kind": "signals", "bytes": signals},
        {"kind": "graph_params", "bytes": (_up(graph) if later else graph) if known else None},
    ]


def _blocks(call: Call) -> tuple[int | None, int | None]:
    """Return the blocks of both kernels: as given, else one per multiprocessor, which the C++ object tells."""
    instance, arguments = call.instance, call.arguments
    pulls, pushes = integer(arguments.get("max_pull_blocks")), integer(arguments.get("max_push_blocks"))
    config = getattr(getattr(instance, "obj", None), "_pull_config", None)
    blocks = integer(getattr(config, "num_blocks", None))
    if blocks is None:
        return None, None
    capped = pulls is not None and blocks >= pulls  # it tells the lesser of the two
    multiprocessors = None if capped else blocks
    return blocks if pulls is None else pulls, multiprocessors if pushes is None else pushes


def _symmetric(instance: Any, world: int | None) -> list[Buffer]:
    slab, push = tensor_bytes(instance._symm_tensor), integer(getattr(instance, "max_push_size", None))
    slots = None if push is None or world is None else 2 * world * push
    pulls = integer(getattr(instance, "max_pull_size", None)) if getattr(instance, "pull_enabled", True) else 0
    rest = None if slab is None or slots is None or pulls is None else slab - slots - pulls
    buffers = [{"kind": "push", "bytes": slots}, {"kind": "pull", "bytes": pulls}, {"kind": "signals", "bytes": rest}]
    for attribute, kind in (("graph_params", "graph_params"), ("_push_counter", "push_counter")):
        size = tensor_bytes(getattr(instance, attribute, None))
        if size is not None:
            buffers.append({"kind": kind, "bytes": size})
    return buffers


def _grown_begin(call: Call) -> Attributes:
    call.notes["slab"] = getattr(call.instance, "_symm_tensor", None)
    return begin(call)


def _grown_end(call: Call) -> Attributes:
    attributes = common(call)
    slab = getattr(call.instance, "_symm_tensor", None)
    if slab is None or slab is call.notes["slab"]:  # it fits already
        return attributes | asked([], None)
    return attributes | asked(_symmetric(call.instance, attributes["world_size"]), "vmm")


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE


SECOND_FAMILY = Reader(begin=begin, end=_end)
GROWN = Reader(begin=_grown_begin, end=_grown_end)
