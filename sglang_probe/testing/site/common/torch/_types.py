"""dtypes, devices and torch's own out-of-memory error."""

from __future__ import annotations


class OutOfMemoryError(RuntimeError):
    """torch's caching allocator found no memory."""


OutOfMemoryError.__module__ = "torch"


class dtype:
    """A dtype: its name and the size of one element in bytes."""

    def __init__(self, name: str, itemsize: int) -> None:
        self._name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self._name}"


bfloat16, float16, float32 = dtype("bfloat16", 2), dtype("float16", 2), dtype("float32", 4)
float8_e4m3fn, float8_e5m2 = dtype("float8_e4m3fn", 1), dtype("float8_e5m2", 1)
int8, uint8, int32, int64, uint64 = (
    dtype("int8", 1),
    dtype("uint8", 1),
    dtype("int32", 4),
    dtype("int64", 8),
    dtype("uint64", 8),
)


class Size(tuple[int, ...]):
    """A shape."""

    __slots__ = ()

    def numel(self) -> int:
        number = 1
        for part in self:
            number *= part
        return number


class device:
    """A device: `cpu`, `cuda` or `cuda:N`."""

    def __init__(self, spec: str | int | device, index: int | None = None) -> None:
        if isinstance(spec, device):
            self.type: str = spec.type
            self.index: int | None = spec.index
        elif isinstance(spec, int):
            self.type, self.index = "cuda", spec
        else:
            kind, _, number = spec.partition(":")
            self.type, self.index = kind, int(number) if number else index

    def __repr__(self) -> str:
        return f"device(type={self.type!r}" + (f", index={self.index})" if self.index is not None else ")")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))
