"""Tensors without numbers: one on a device only holds its bytes there; a small one on the CPU carries its values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from fakegpu.cuda import cuda
from fakegpu.ledger import OutOfDeviceMemory

from torch._errors import out_of_memory
from torch._types import Size, device, dtype, float32, int64


class Tensor:
    """A shape, a dtype, a device, and the device memory that goes with them for as long as the tensor lives."""

    def __init__(self, shape: Sequence[int], kind: dtype, where: device, data: Any = None) -> None:
        self.shape, self.dtype, self.device, self.data = Size(shape), kind, where, data
        self._address, self._give_back = _take(self)

    def numel(self) -> int:
        return self.shape.numel()

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.element_size()

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def data_ptr(self) -> int:
        return self._address

    def item(self) -> Any:
        return self.data

    def tolist(self) -> Any:
        return self.data

    def __del__(self) -> None:
        give_back = getattr(self, "_give_back", None)
        if give_back is not None:
            give_back()


def _take(wanted: Tensor) -> tuple[int, Callable[[], None] | None]:
    if wanted.device.type != "cuda":
        return id(wanted), None
    process = cuda()
    index = process.current if wanted.device.index is None else wanted.device.index
    try:
        _, give_back = process.allocate(index, wanted.nbytes)
    except OutOfDeviceMemory as refused:
        raise out_of_memory(process, index, wanted.nbytes, refused) from None
    return id(wanted) + (1 << 46), give_back


def _shape(parts: tuple[Any, ...]) -> Sequence[int]:
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], int) else parts


def _where(where: str | int | device | None) -> device:
    return device("cpu" if where is None else where)


def empty(*shape: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Return a tensor of `shape`. Raises torch.OutOfMemoryError where the device has no room."""
    return Tensor(_shape(shape), dtype or float32, _where(device))


def zeros(*shape: Any, dtype: dtype | None = None, device: Any = None, size: Any = None) -> Tensor:
    """Return a tensor of `shape` (or `size`)."""
    return Tensor(size if size is not None else _shape(shape), dtype or float32, _where(device))


ones = empty


def tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Return a tensor that carries `data`, a number or a list of numbers, rounded as its dtype rounds."""
    kind = dtype or (int64 if isinstance(data, int) else float32)
    rounded = _round(data, kind) if isinstance(data, float | int) else list(data)
    return Tensor(() if not isinstance(rounded, list) else (len(rounded),), kind, _where(device), rounded)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return one tensor as long as all of `tensors`."""
    first = tensors[0]
    return Tensor((sum(one.shape[0] for one in tensors), *first.shape[1:]), first.dtype, first.device)


def _round(number: float | int, kind: dtype) -> float | int:
    return float(struct.unpack("f", struct.pack("f", number))[0]) if kind is float32 else number
