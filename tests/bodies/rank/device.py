"""CUDA for a real torch that was built without it: what a tensor of `cuda:N` costs goes to the FakeGpu.

A tensor "on" a fake GPU is a tensor of the host that says it is on `cuda:N`; its bytes are on the ledger under the
label `ask HOW BYTES`, so that a test reads there what was asked, to the byte, beside what the card lost for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from sglang_probe.testing.core.allocator import LARGE_STEP, round_up
from sglang_probe.testing.core.cuda import cuda, uuid_of
from tests.bodies.rank.idle import Event, Stream

SM_COUNT = 132
skew = 0
"""A test's test: how many bytes more than it is asked for a library says that it was asked for."""
FACTORIES = ("empty", "zeros", "ones", "full", "tensor", "rand", "randn", "arange", "empty_strided")


def _on_cuda(tensor: Any, index: int) -> Any:
    class OnCuda(torch.Tensor):  # type: ignore[misc]  # torch is not in the environment that checks types
        """A tensor of the host that answers for a fake GPU; views of it do too."""

        device = property(lambda self: torch.device("cuda", index))
        is_cuda = property(lambda self: True)

    return torch.Tensor._make_subclass(OnCuda, tensor)


def index_of(where: Any) -> int:
    """Return the number of a device given as number, text, `torch.device` or None (the current one)."""
    if isinstance(where, int):
        return where
    index = None if where is None else torch.device(where).index
    return cuda().current if index is None else index


@contextlib.contextmanager
def asking(how: str, size: int) -> Iterator[None]:
    """Label what is taken inside with what was asked for."""
    with cuda().label(f"ask {how} {size}"):
        yield


def raw(how: str, size: int, device: int | None = None, *, exact: bool = False) -> int:
    """Take `size` bytes outside torch, in the driver's steps of 2 MiB unless `exact`; return the address."""
    index = cuda().current if device is None else device
    with asking(how, size + skew):
        return cuda().charge(index, size) if exact else cuda().malloc(index, size)


def outside_tensor(how: str, shape: Any, dtype: Any, device: Any, extra: int = 0) -> Any:
    """Return a tensor whose memory a library allocated: torch's allocator does not count it, the card does."""
    tensor = torch.empty(shape, dtype=dtype)
    index = index_of(device)
    with asking(how, tensor.nbytes + skew):
        address = cuda().charge(index, round_up(tensor.nbytes + extra, LARGE_STEP))
    tensor = _on_cuda(tensor, index)
    weakref.finalize(tensor.untyped_storage(), cuda().free_raw, address).atexit = False
    return tensor


class OnFakeGpus(TorchFunctionMode):  # type: ignore[misc]  # likewise
    """Makes tensors for `cuda` devices, charged to torch's allocator on the fake card."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        wanted = kwargs.get("device")
        if wanted is not None and name in FACTORIES and torch.device(wanted).type == "cuda":
            return _charged(function(*args, **{**kwargs, "device": "cpu"}), index_of(wanted))
        if name in ("empty_like", "zeros_like", "ones_like") and args[0].device.type == "cuda" and wanted is None:
            return _charged(function(args[0].as_subclass(torch.Tensor), **kwargs), args[0].device.index)
        return function(*args, **kwargs)


def _charged(tensor: Any, index: int) -> Any:
    with asking("torch", tensor.nbytes):
        _, give_back = cuda().allocate(index, tensor.nbytes)
    tensor = _on_cuda(tensor, index)
    weakref.finalize(tensor.untyped_storage(), give_back).atexit = False
    return tensor


def _use(where: Any) -> None:
    cuda().use(index_of(where))
    cuda().current = index_of(where)


@contextlib.contextmanager
def _device(where: Any) -> Iterator[None]:
    before, cuda().current = cuda().current, index_of(where)
    try:
        yield
    finally:
        cuda().current = before


@contextlib.contextmanager
def _stream(_: Any) -> Iterator[None]:
    yield


def _properties(where: Any = None) -> Any:
    uuid = uuid_of(cuda().physical(index_of(where)))
    card = cuda().card
    return SimpleNamespace(
        name=card.name,
        uuid=uuid,
        total_memory=card.cuda_total_bytes,
        multi_processor_count=SM_COUNT,
        major=9,
        minor=0,
        gcnArchName="gfx942:sramecc+:xnack-",
        warp_size=32,
    )


def _statistics(where: Any = None) -> dict[str, Any]:
    return cuda().allocator(index_of(where)).statistics()


def install(platform: str = "cuda") -> None:
    """Let torch.cuda be the fake GPUs for the rest of this process; `platform` is cuda or hip."""
    build_for(platform)
    for name, function in {
        "is_available": lambda: True,
        "is_initialized": lambda: cuda().initialized,
        "init": lambda: cuda().initialize(),
        "_lazy_init": lambda: cuda().initialize(),
        "device_count": lambda: len(cuda().visible),
        "current_device": lambda: cuda().current,
        "set_device": _use,
        "device": _device,
        "stream": _stream,
        "Stream": Stream,
        "Event": Event,
        "ExternalStream": Stream,
        "current_stream": Stream,
        "default_stream": Stream,
        "set_stream": lambda _: None,
        "synchronize": lambda *_: None,
        "mem_get_info": lambda where=None: cuda().mem_get_info(index_of(where)),
        "memory_stats_as_nested_dict": _statistics,
        "memory_snapshot": lambda *_: cuda().segments(),
        "memory_allocated": lambda where=None: cuda().allocator(index_of(where)).allocated.current,
        "memory_reserved": lambda where=None: cuda().allocator(index_of(where)).reserved.current,
        "empty_cache": lambda: cuda().empty_cache(),
        "get_device_properties": _properties,
        "get_device_name": lambda where=None: cuda().card.name,
        "get_device_capability": lambda where=None: (9, 0),
        "can_device_access_peer": lambda one, other: True,
        "is_current_stream_capturing": lambda: cuda().capturing,
        "graph_pool_handle": lambda: (0, 1),
    }.items():
        setattr(torch.cuda, name, function)
    torch.get_device_module = lambda where=None: torch.cuda
    torch._C._cuda_hasPrimaryContext = lambda index: cuda().has_context(index)
    _let_operators_be_registered_again()
    OnFakeGpus().__enter__()


def build_for(platform: str) -> None:
    """Let torch say that it was built for `platform`: SGLang's own predicates look there."""
    torch.version.cuda = "12.8" if platform == "cuda" else None
    torch.version.hip = "6.3" if platform == "hip" else None


def _let_operators_be_registered_again() -> None:
    """SGLang registers its operators as it is imported, and torch takes each only once: here many releases come."""
    for name in ("define", "impl", "_register_fake"):
        original = getattr(torch.library.Library, name)

        def lenient(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            with contextlib.suppress(RuntimeError):
                return original(*args, **kwargs)

        setattr(torch.library.Library, name, lenient)


class Runtime:
    """In place of SGLang's ctypes binding of the CUDA runtime: IPC handles are the addresses themselves."""

    def __init__(self, *_: Any) -> None:
        pass

    def cudaMalloc(self, size: int) -> Any:  # noqa: N802  # CUDA's names
        return ctypes.c_void_p(raw("cudaMalloc", size))

    def cudaIpcGetMemHandle(self, pointer: Any) -> Any:  # noqa: N802
        return pointer.value

    def cudaIpcOpenMemHandle(self, handle: Any) -> Any:  # noqa: N802
        return ctypes.c_void_p(handle)

    def cudaFree(self, pointer: Any) -> None:  # noqa: N802
        cuda().free_raw(pointer.value)

    def cudaMemset(self, *_: Any) -> None:  # noqa: N802
        pass
