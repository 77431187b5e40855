"""torch.cuda on fake GPUs: same names, same side effects (what creates a context there creates one here)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from fakegpu.cuda import NoDriver, cuda

from torch._types import OutOfMemoryError
from torch._types import device as torch_device
from torch.cuda import nccl
from torch.cuda._properties import DeviceProperties, properties_of

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["CUDAGraph", "Event", "OutOfMemoryError", "Stream", "nccl"]


def _recorded(function: Callable[P, R]) -> Callable[P, R]:
    """Record every call, after it, with the context that it made."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            process = cuda()
        except NoDriver:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            process.note(f"torch.cuda.{function.__name__}", *args, *kwargs.values())

    return call


def _index(where: Any) -> int:
    if where is None:
        return cuda().current
    if isinstance(where, int):
        return where
    index = torch_device(where).index
    return cuda().current if index is None else index


def is_available() -> bool:
    """Return whether there is a device; initialises nothing."""
    return device_count() > 0


@_recorded
def is_initialized() -> bool:
    """Return whether CUDA was initialised in this very process."""
    try:
        process = cuda()
    except NoDriver:
        return False
    return process.initialized and not process.bad_fork


@_recorded
def init() -> None:
    """Initialise CUDA; makes no context."""
    cuda().initialize()


def device_count() -> int:
    try:
        return len(cuda().visible)
    except NoDriver:
        return 0


@_recorded
def current_device() -> int:
    cuda().initialize()
    return cuda().current


@_recorded
def set_device(device: Any) -> None:
    """Make `device` the current one; since CUDA 12 this creates a context there."""
    number = _index(device)
    cuda().use(number)
    cuda().current = number


@_recorded
def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return free and total bytes of `device`. Creates a context there."""
    return cuda().mem_get_info(_index(device))


@_recorded
def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return the allocator's figures; empty before CUDA is initialised. Creates no context."""
    return cuda().allocator(_index(device)).statistics() if cuda().initialized else {}


@_recorded
def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return the figures of page-locked host memory, of which nothing here takes any; empty before CUDA is up."""
    nothing = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    return {"allocated_bytes": nothing, "active_bytes": nothing} if cuda().initialized else {}


@_recorded
def memory_snapshot() -> list[dict[str, Any]]:
    """Return the segments of every device; a graph's private pool has an id other than (0, 0)."""
    return cuda().segments()


@_recorded
def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return the same figures with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in (cuda().allocator(_index(device)).statistics() if cuda().initialized else {}).items():
        if isinstance(value, dict):
            flat.update({f"{name}.all.{key}": figure for key, figure in value["all"].items()})
        else:
            flat[name] = value
    return flat


@_recorded
def memory_allocated(device: Any = None) -> int:
    return cuda().allocator(_index(device)).allocated.current


@_recorded
def max_memory_allocated(device: Any = None) -> int:
    return cuda().allocator(_index(device)).allocated.peak


@_recorded
def memory_reserved(device: Any = None) -> int:
    return cuda().allocator(_index(device)).reserved.current


@_recorded
def max_memory_reserved(device: Any = None) -> int:
    return cuda().allocator(_index(device)).reserved.peak


@_recorded
def reset_peak_memory_stats(device: Any = None) -> None:
    cuda().allocator(_index(device)).reset_peaks()


@_recorded
def empty_cache() -> None:
    """Give the unused part of torch's cache back to the device."""
    if cuda().initialized:
        cuda().empty_cache()


@_recorded
def synchronize(device: Any = None) -> None:
    """Wait for nothing, but create the context that a real one would."""
    cuda().use(_index(device))


@_recorded
def get_device_properties(device: Any = None) -> DeviceProperties:
    """Return name, total memory and UUID. Initialises CUDA; creates no context."""
    cuda().initialize()
    return properties_of(cuda(), _index(device))


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    return 9, 0


@_recorded
def is_current_stream_capturing() -> bool:
    """Return whether a CUDA graph is being captured."""
    return cuda().capturing


class Stream:
    """A stream; nothing runs on it."""

    def synchronize(self) -> None:
        """Wait for nothing."""


class Event:
    """An event; nothing happens at it."""


class CUDAGraph:
    """A captured graph: it keeps its pool."""


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Run on `stream`."""
    yield


@contextmanager
def graph(cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None) -> Iterator[None]:
    """Capture a graph: what tensors take inside comes from the graph's own pool."""
    process = cuda()
    process.capturing = True
    try:
        yield
    finally:
        process.capturing = False


class device:
    """Make a device the current one for a while."""

    def __init__(self, where: Any) -> None:
        self._number = _index(where)
        self._before = self._number

    def __enter__(self) -> None:
        process = cuda()
        self._before = process.current
        process.use(self._number)
        process.current = self._number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cuda().current = self._before
