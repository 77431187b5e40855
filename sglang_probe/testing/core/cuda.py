"""CUDA as one process sees it: initialised or not, which device it has a context on, what it holds.

Asking a device for its memory creates a context on it and costs memory, exactly as CUDA does; asking whether there is a
context does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .allocator import LARGE_STEP, Block, CachingAllocator, round_up
from .calls import CallLog
from .ledger import ENVIRONMENT, Ledger, OutOfDeviceMemory
from .scenario import Card

BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. "
    "To use CUDA with multiprocessing, you must use the 'spawn' start method"
)


class NoDriver(RuntimeError):
    """There is no fake GPU here."""


class Cuda:
    """This process's CUDA. Device indices are those after CUDA_VISIBLE_DEVICES; a ledger's are not."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.calls = CallLog(ledger.directory)
        self.pid = os.getpid()
        self.initialized = False
        self.current = 0
        self.capturing = False
        self.visible = visible_devices(ledger.scenario.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._contexts: set[int] = set()
        self._allocators: dict[int, CachingAllocator] = {}
        self._raw: dict[int, tuple[int, int, str]] = {}
        self._labels = ["other"]
        self._next_address = 0x7F0000000000
        self._made_context = False

    @property
    def card(self) -> Card:
        return self.ledger.card

    @property
    def bad_fork(self) -> bool:
        """Whether this is a fork of a process that had initialised CUDA."""
        return self.initialized and os.getpid() != self.pid

    def note(self, name: str, *arguments: object, depth: int = 3) -> None:
        """Record that `name` was called `depth` frames up (3: our caller's caller), and if it made a context."""
        made, self._made_context = self._made_context, False
        self.calls.write(name, arguments, depth, made, self.capturing)

    def initialize(self) -> None:
        """Initialise CUDA, without a context. Raises RuntimeError without a GPU or after a fork."""
        if self.bad_fork:
            raise RuntimeError(BAD_FORK)
        if not self.visible:
            raise NoDriver("No CUDA GPUs are available")
        self.initialized = True

    def physical(self, device: int) -> int:
        """Return the ledger's index of `device`. Raises RuntimeError where there is none."""
        if not 0 <= device < len(self.visible):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.visible[device]

    def has_context(self, device: int) -> bool:
        """Return whether this process has a primary context on `device`; makes none."""
        return device in self._contexts and not self.bad_fork

    def use(self, device: int) -> int:
        """Make sure of a context on `device`; return the ledger's index. Raises RuntimeError without room."""
        self.initialize()
        gpu = self.physical(device)
        if device not in self._contexts:
            self._take(gpu, self.card.context_bytes, "context", "cuda_context")
            self._contexts.add(device)
            self._made_context = True
        return gpu

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """Return free and total bytes of `device`, making a context there."""
        return self.ledger.free(self.use(device)), self.card.cuda_total_bytes

    @contextmanager
    def label(self, name: str) -> Iterator[None]:
        """Name what is taken inside, for the record: `weights_target`, `kv_pool`, ..."""
        self._labels.append(name)
        try:
            yield
        finally:
            self._labels.pop()

    def malloc(self, device: int, size: int) -> int:
        """cudaMalloc, in the driver's steps of 2 MiB: return an address. Raises RuntimeError on a full card."""
        return self._take_raw(device, round_up(size, LARGE_STEP))

    def charge(self, device: int, size: int) -> int:
        """Take exactly `size` bytes outside torch, as a library does. Raises RuntimeError where the card is full."""
        return self._take_raw(device, size)

    def _take(self, gpu: int, size: int, backing: str, label: str) -> None:
        try:
            self.ledger.take(gpu, size, backing, label)
        except OutOfDeviceMemory:
            raise RuntimeError("CUDA error: out of memory") from None

    def _take_raw(self, device: int, size: int) -> int:
        gpu = self.use(device)
        self._take(gpu, size, "raw", self._labels[-1])
        self._next_address += max(size, LARGE_STEP)
        self._raw[self._next_address] = (gpu, size, self._labels[-1])
        return self._next_address

    def free_raw(self, address: int) -> None:
        """cudaFree. Raises RuntimeError for an address that is not held."""
        if address not in self._raw:
            raise RuntimeError("CUDA error: invalid argument")
        gpu, size, label = self._raw.pop(address)
        self.ledger.take(gpu, -size, "raw", label)

    def allocator(self, device: int) -> CachingAllocator:
        """Return torch's allocator on `device`. Asking for it makes no context."""
        if device not in self._allocators:
            self._allocators[device] = CachingAllocator(partial(self._move_segment, device))
        return self._allocators[device]

    def _move_segment(self, device: int, size: int) -> None:
        self.ledger.take(self.use(device), size, "segment", self._labels[-1])

    def allocate(self, device: int, size: int) -> tuple[Block, Callable[[], None]]:
        """Take a tensor's bytes; return them and what gives them back. Raises OutOfDeviceMemory."""
        gpu, label, allocator = self.use(device), self._labels[-1], self.allocator(device)
        block = allocator.allocate(size, graph_pool=self.capturing)
        self.ledger.take(gpu, 0, "tensor", label, torch_bytes=block.size)

        def give_back() -> None:
            if os.getpid() != self.pid:
                return  # a fork's copy of a tensor: the memory is the parent's
            allocator.free(block)
            self.ledger.take(gpu, 0, "tensor", label, torch_bytes=-block.size)

        return block, give_back

    def segments(self) -> list[dict[str, object]]:
        """Return every segment of torch's allocators, each with its device."""
        return [
            {"device": device, **one} for device, allocator in self._allocators.items() for one in allocator.segments()
        ]

    def empty_cache(self) -> None:
        """Return what torch keeps unused, on every device."""
        for allocator in self._allocators.values():
            allocator.empty_cache()


def visible_devices(gpus: int, setting: str | None) -> list[int]:
    """Return the ledger's indices that CUDA_VISIBLE_DEVICES leaves, in its order; the first bad entry ends them."""
    if setting is None:
        return list(range(gpus))
    visible = []
    for entry in setting.split(","):
        matches = [gpu for gpu in range(gpus) if entry.strip() in (str(gpu), f"GPU-{uuid_of(gpu)}")]
        if not matches:
            break
        visible.append(matches[0])
    return visible


def uuid_of(gpu: int) -> str:
    """Return the UUID of a ledger's GPU as torch spells it; NVML puts `GPU-` in front."""
    return f"{0xFA5E0000 + gpu:08x}-5a1e-4b1d-8c0d-{0x50B3 + 257 * gpu:012x}"


_cuda: Cuda | None = None


def cuda() -> Cuda:
    """Return this process's CUDA, found through SGLANG_PROBE_FAKE_GPUS. Raises NoDriver where that names no GPUs.

    After a fork the parent's object stays, as CUDA's broken state does; only its ledger and call log are opened anew.
    """
    global _cuda
    if _cuda is None:
        directory = os.environ.get(ENVIRONMENT)
        if not directory:
            raise NoDriver(f"Found no NVIDIA driver on your system ({ENVIRONMENT} names no directory of fake GPUs)")
        _cuda = Cuda(Ledger(Path(directory)))
    elif os.getpid() != _cuda.ledger.pid:
        _cuda.ledger, _cuda.calls = Ledger(_cuda.ledger.directory), CallLog(_cuda.ledger.directory)
    return _cuda


def forget() -> None:
    """Drop this process's CUDA, so that the next use finds its GPUs anew. What it held on the ledger is given back."""
    global _cuda
    if _cuda is not None and os.getpid() == _cuda.pid:
        for gpu in range(_cuda.ledger.scenario.gpus):
            held = _cuda.ledger.held(gpu).get(_cuda.pid, 0)
            if held:
                _cuda.ledger.take(gpu, -held, "context", "process_end")
        _cuda.calls.close()
        _cuda.ledger.close()
    _cuda = None
