"""`dist.init` and `dist.communicator`: the pre-load memory, and what lies between idle and it."""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, gib_to_bytes, integer, number, tensor_bytes, text
from sglang_probe.agent.readers.context import first_integer, published
from sglang_probe.agent.readers.ranks import rank_of

_MSCCLPP_BUFFERS = ("scratch", "put_buffer", "scratch_buffer", "flag_buffer")


def _pre_load(call: Call) -> float | int | None:
    """Return the pre-load memory in GiB: what the call returned, a field of it, or what it left on the runner."""
    for found in (call.result, getattr(call.result, "pre_model_load_memory", None)):
        if number(found) is not None:
            return number(found)
    return number(getattr(call.instance, "pre_model_load_memory", None)) if call.error is None else None


def _init_end(call: Call) -> Attributes:
    return _what_was_built(call, _pre_load(call))


def _runtime_begin(call: Call) -> Attributes:
    """From 0.5.21 on the groups are built before there is a runner: without a scheduler this is where a rank begins."""
    identity = call.agent.identity
    if identity.index is None:
        server_args = call.arguments.get("server_args")
        identity.rank = identity.rank or rank_of({}, server_args)
        identity.use_device(call.arguments.get("device"), first_integer("gpu_id", published("get_device")))
        call.agent.report_server_args(server_args)
    return {}


def _runtime_end(call: Call) -> Attributes:
    return _what_was_built(call, None)


def _what_was_built(call: Call, pre_load: float | int | None) -> Attributes:
    world_size = call.notes.get("world_size") or _world_size(call)
    scope = None if world_size is None else "min_over_ranks" if world_size > 1 else "local"
    return {
        "pre_load_bytes": gib_to_bytes(pre_load),
        "pre_load_gib": pre_load,
        "pre_load_scope": scope if pre_load is not None else None,
        "backend": call.notes.get("backend"),
        "distributed_init_method": call.notes.get("distributed_init_method"),
        "world_size": world_size,
        "groups": call.notes.get("groups", {}),
    }


def _world_size(call: Call) -> int | None:
    world = (call.agent.identity.rank or {}).get("world")
    return None if world is None else int(world["size"])


def _world_begin(call: Call) -> Attributes:
    arguments = call.arguments
    world: Attributes = {
        "communicator": "ProcessGroup",
        "group": "world",
        "backend": text(arguments.get("backend")),
        "distributed_init_method": text(arguments.get("distributed_init_method")),
        "world_size": integer(arguments.get("world_size")),
        "world_rank": integer(arguments.get("rank")),
    }
    call.notes.update(world)
    around = call.enclosing("dist.init")
    if around is not None:
        around.notes.update({key: world[key] for key in ("backend", "distributed_init_method", "world_size")})
    return world


def _world_end(call: Call) -> Attributes:
    return dict(call.notes)


def _coordinator_begin(call: Call) -> Attributes:
    return {"communicator": "GroupCoordinator", "group": text(call.arguments.get("group_name"))}


def _coordinator_end(call: Call) -> Attributes:
    group = call.instance
    name = text(getattr(group, "unique_name", None))
    size = integer(getattr(group, "world_size", None))
    around = call.enclosing("dist.init")
    if around is not None and name is not None and size is not None:
        around.notes.setdefault("groups", {})[name] = size
    return {
        "communicator": "GroupCoordinator",
        "group": name,
        "group_size": size,
        "group_rank": integer(getattr(group, "rank_in_group", None)),
        "backend": text(call.arguments.get("torch_distributed_backend")),
        # Also where the class is not SGLang's own (aiter's on ROCm), so that no event of its buffers exists.
        "custom_allreduce": _class_of(getattr(group, "ca_comm", None)),
    }


def _class_of(member: Any) -> str | None:
    return None if member is None else type(member).__name__


def _member_begin(call: Call) -> Attributes:
    return {"communicator": type(call.instance).__name__, "group": group_name(call)}


def _member_end(call: Call) -> Attributes:
    # SGLang leaves `disabled` set outside graph capture; `available` tells whether it was built.
    available = getattr(call.instance, "available", None)
    return _member(call, None if available is None else not available)


def _mscclpp_end(call: Call) -> Attributes:
    """What says that it was built has changed twice: a C++ context, tuned configurations, `available`."""
    communicator = call.instance
    marks = [name for name in ("_context", "best_configs") if getattr(communicator, name, None) is not None]
    attributes = _member(call, not (marks or hasattr(communicator, "comm")))
    sizes = [tensor_bytes(getattr(communicator, name, None)) for name in _MSCCLPP_BUFFERS]
    known = [size for size in sizes if size is not None]
    return attributes | {"asked_bytes": sum(known) if known else None}


def _member(call: Call, disabled: bool | None) -> Attributes:
    communicator = call.instance
    version = getattr(communicator, "nccl_version", None)
    return {
        "communicator": type(communicator).__name__,
        "group": group_name(call),
        "group_size": integer(getattr(communicator, "world_size", None)),
        "group_rank": integer(getattr(communicator, "rank", None)),
        "disabled": disabled,
        "library_version": text(version),
    }


def group_name(call: Call) -> str | None:
    """Return the name of the group that the coordinator around this call is building."""
    around = call.parent
    while around is not None and around.target.path != "GroupCoordinator.__init__":
        around = around.parent
    group: Any = None if around is None else around.instance
    return text(getattr(group, "unique_name", None))


INIT = Reader(end=_init_end)
RUNTIME = Reader(begin=_runtime_begin, end=_runtime_end)
WORLD = Reader(begin=_world_begin, end=_world_end)
COORDINATOR = Reader(begin=_coordinator_begin, end=_coordinator_end)
MEMBER = Reader(begin=_member_begin, end=_member_end)
MSCCLPP = Reader(begin=_member_begin, end=_mscclpp_end)
