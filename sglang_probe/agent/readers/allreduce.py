"""`allreduce.buffers`: what a custom all-reduce asks for, or why it stayed disabled.

Buffers of the first family come from `cudaMalloc` (meta: signals and a temporary, then data: the staging buffer) and
are shared over CUDA IPC; its rank_data is a torch tensor. The second family makes one allocation in C++ (0.5.14): the
sizes it was given are visible, its signals and graph parameters are not (null: `asked_bytes` is a lower bound).
"""

from __future__ import annotations

import logging
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer, tensor_bytes
from sglang_probe.agent.readers.dist import group_name

_PACKAGE = "sglang.srt.distributed.device_communicators."
_LOGGERS = tuple(_PACKAGE + name for name in ("custom_all_reduce", "custom_all_reduce_utils", "custom_all_reduce_v2"))
_BUFFER_KINDS = ("meta", "data")


class _LastWarning(logging.Filter):
    """Lets every record pass and keeps the last warning: SGLang says only there why it disabled itself."""

    def __init__(self) -> None:
        super().__init__()
        self.record: logging.LogRecord | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.record = record  # its text is made later, under the reader's guard: making it may raise
        return True


def _begin(call: Call) -> Attributes:
    call.notes["listener"] = listener = _LastWarning()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(listener)
    return {"class": type(call.instance).__name__, "group": group_name(call)}


def _common(call: Call) -> Attributes:
    listener: _LastWarning | None = call.notes.pop("listener", None)
    for name in _LOGGERS if listener is not None else ():
        logging.getLogger(name).removeFilter(listener)  # type: ignore[arg-type]
    instance = call.instance
    disabled = getattr(instance, "disabled", None)
    return {
        "class": type(instance).__name__,
        "group": group_name(call),
        "world_size": integer(getattr(instance, "world_size", None)),
        "group_rank": integer(getattr(instance, "rank", None)),
        "max_size_bytes": integer(getattr(instance, "max_size", None)),
        "disabled": disabled if isinstance(disabled, bool) else None,
        "disabled_reason": _why_disabled(listener) if disabled is True else None,
    }


def _why_disabled(listener: _LastWarning | None) -> str:
    if listener is not None and listener.record is not None:
        return listener.record.getMessage()
    return "SGLang gave no reason: a group of one rank, or its all-reduce kernels are not importable here"


def _first_family_end(call: Call) -> Attributes:
    attributes = _common(call)
    buffers = list(call.notes.get("buffers", []))
    rank_data = tensor_bytes(getattr(call.instance, "rank_data", None))
    if rank_data is not None:
        buffers.append({"kind": "rank_data", "bytes": rank_data})
    return attributes | _asked(buffers, "ipc")


def _second_family_end(call: Call) -> Attributes:
    attributes = _common(call)
    instance = call.instance
    if attributes["disabled"] is not False:
        return attributes | _asked([], None)
    push, world = integer(getattr(instance, "max_push_size", None)), attributes["world_size"]
    buffers: list[dict[str, Any]] = [
        {"kind": "pull", "bytes": integer(getattr(instance, "max_pull_size", None))},
        # Every peer has a slot of its own, twice over, so that one all-reduce can begin while the last one is read.
        {"kind": "push", "bytes": None if push is None or world is None else 2 * world * push},
        {"kind": "signals_and_graph_params", "bytes": None},
    ]
    return attributes | _asked(buffers, "ipc")


def _asked(buffers: list[dict[str, Any]], sharing: str | None) -> Attributes:
    known = [buffer["bytes"] for buffer in buffers if buffer["bytes"] is not None]
    return {
        "buffers": buffers,
        "asked_bytes": sum(known) if known else None,
        "sharing": sharing if buffers else None,
    }


def _shared_buffer_begin(call: Call) -> Attributes:
    owner = call.parent
    built = [] if owner is None else owner.notes.setdefault("buffers", [])
    kind = _BUFFER_KINDS[len(built)] if len(built) < len(_BUFFER_KINDS) else f"buffer_{len(built)}"
    asked = integer(call.arguments.get("size_in_bytes"))
    built.append({"kind": kind, "bytes": asked})
    call.notes["attributes"] = {
        "class": None if owner is None else type(owner.instance).__name__,
        "group": group_name(call),
        "buffer_kind": kind,
        "asked_bytes": asked,
        "sharing": "ipc",
    }
    return dict(call.notes["attributes"])


def _shared_buffer_end(call: Call) -> Attributes:
    return dict(call.notes.get("attributes", {}))


FIRST_FAMILY = Reader(begin=_begin, end=_first_family_end)
SECOND_FAMILY = Reader(begin=_begin, end=_second_family_end)
SHARED_BUFFER = Reader(begin=_shared_buffer_begin, end=_shared_buffer_end)
