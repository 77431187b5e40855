"""`allreduce.buffers`: what a custom all-reduce of the first family asks for, or why it stayed disabled.

On CUDA its buffers come from `cudaMalloc` (meta: signals and a temporary, then data: the staging buffer) and are shared
over CUDA IPC; its rank_data is a torch tensor. Up to 0.4.4.post3 another branch takes four (data, tmp_result, two
barriers). On ROCm `meta` and `buffer` are tensors.
"""

from __future__ import annotations

import logging
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, integer, tensor_bytes
from sglang_probe.agent.readers.dist import group_name

_UTILS = "sglang.srt.distributed.device_communicators.custom_all_reduce_utils"
_POINTERS = {
    "meta_ptrs": "meta",
    "buffer_ptrs": "data",
    "tmp_result_buffer_ptrs": "tmp_result",
    "barrier_in_ptrs": "barrier_in",
    "barrier_out_ptrs": "barrier_out",
}
"""Where the constructor keeps the pointers that `create_shared_buffer` returned: the buffer's name, for certain."""
_TENSORS = {"meta": "meta", "buffer": "data", "rank_data": "rank_data", "rank_data_base": "rank_data"}


class LastWarning(logging.Filter):
    """Lets every record pass and keeps the last warning: SGLang says only there why it disabled itself."""

    def __init__(self) -> None:
        super().__init__()
        self.record: logging.LogRecord | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.record = record  # its text is made later, under the reader's guard: making it may raise
        return True


def begin(call: Call) -> Attributes:
    """Say which class begins, and listen for the reason that it may give."""
    call.notes["listener"] = listener = LastWarning()
    for name in _loggers(call):
        logging.getLogger(name).addFilter(listener)
    return {"class": class_of(call), "group": group_name(call)}


def class_of(call: Call) -> str:
    """Return the class of the instance, or the name of a function."""
    return call.target.path.rpartition(".")[2] if call.instance is None else type(call.instance).__name__


def _loggers(call: Call) -> tuple[str, ...]:
    return call.target.module, _UTILS


def common(call: Call) -> Attributes:
    """Return what every class has, and why it disabled itself where it did."""
    listener: LastWarning | None = call.notes.pop("listener", None)
    for name in _loggers(call) if listener is not None else ():
        logging.getLogger(name).removeFilter(listener)  # type: ignore[arg-type]
    instance = call.instance
    disabled = getattr(instance, "disabled", None)
    return {
        "class": class_of(call),
        "group": group_name(call),
        "world_size": integer(getattr(instance, "world_size", None)),
        "group_rank": integer(getattr(instance, "rank", None)),
        "max_size_bytes": integer(getattr(instance, "max_size", None)),
        "disabled": disabled if isinstance(disabled, bool) else None,
        "disabled_reason": _reason(call, listener) if disabled is True else None,
    }


def _reason(call: Call, listener: LastWarning | None) -> str:
    """SGLang catches what its constructor raises, and goes on without it."""
    return why_disabled(listener) if call.error is None else f"{type(call.error).__name__}: {call.error}"


def why_disabled(listener: LastWarning | None) -> str:
    """Return SGLang's own words, where it had any at the level of a warning."""
    if listener is not None and listener.record is not None:
        return listener.record.getMessage()
    return "SGLang warned of nothing: a group of one rank, another platform, or its kernels are not importable here"


def asked(buffers: list[dict[str, Any]], sharing: str | None) -> Attributes:
    """Return the buffers and their sum, null where no size is known; where one is unknown it is a lower bound."""
    known = [buffer["bytes"] for buffer in buffers if buffer["bytes"] is not None]
    return {
        "buffers": buffers,
        "asked_bytes": sum(known) if known else None,
        "sharing": sharing if buffers else None,
    }


def _end(call: Call) -> Attributes:
    attributes = common(call)
    instance = call.instance
    names = {id(value): name for attribute, name in _POINTERS.items() if (value := vars(instance).get(attribute))}
    buffers = [
        {"kind": names.get(id(taken.pop("pointers", None)), taken["kind"]), "bytes": taken["bytes"]}
        for taken in (dict(buffer) for buffer in call.notes.get("buffers", []))
    ]
    for attribute, kind in _TENSORS.items():
        size = tensor_bytes(getattr(instance, attribute, None))
        if size is not None:
            buffers.append({"kind": kind, "bytes": size})
    return attributes | asked(buffers, "ipc")


def _shared_buffer_begin(call: Call) -> Attributes:
    owner = call.parent
    built = [] if owner is None else owner.notes.setdefault("buffers", [])
    size = integer(call.arguments.get("size_in_bytes"))
    largest = None if owner is None else integer(getattr(owner.instance, "max_size", None))
    kind = _kind(size, largest, [buffer["kind"] for buffer in built])
    call.notes["buffer"] = {"kind": kind, "bytes": size}
    built.append(call.notes["buffer"])
    call.notes["attributes"] = {
        "class": None if owner is None else type(owner.instance).__name__,
        "group": group_name(call),
        "buffer_kind": kind,
        "asked_bytes": size,
        "sharing": "ipc",
    }
    return dict(call.notes["attributes"])


def _kind(size: int | None, largest: int | None, before: list[str]) -> str:
    """Return the name that a buffer's size gives it: meta is data and its signals, a barrier is less than either."""
    if size is None or largest is None:
        order = ("meta", "data")
        return order[len(before)] if len(before) < len(order) else f"buffer_{len(before)}"
    if size > largest:
        return "meta"
    first, second = ("data", "tmp_result") if size == largest else ("barrier_in", "barrier_out")
    return second if first in before else first


def _shared_buffer_end(call: Call) -> Attributes:
    if call.result is not None:
        call.notes["buffer"]["pointers"] = call.result
    return dict(call.notes.get("attributes", {}))


FIRST_FAMILY = Reader(begin=begin, end=_end)
SHARED_BUFFER = Reader(begin=_shared_buffer_begin, end=_shared_buffer_end)
