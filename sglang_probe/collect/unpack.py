"""Compressed input, recognised by its first bytes and read block by block: gzip, zstd, xz, bzip2.

Members that follow each other are one text. Of an archive that is cut off or damaged what is whole is read, and
`fault` says what was wrong.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from sglang_probe.collect.errors import InputError

_CHUNK: Final = 64 * 1024
_ZSTD_SKIPPABLE: Final = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
"""A frame without content; some compressors write one first."""
_MAGIC: Final[dict[str, tuple[bytes, ...]]] = {
    "gzip": (b"\x1f\x8b\x08",),
    "zstd": (b"\x28\xb5\x2f\xfd", *_ZSTD_SKIPPABLE),
    "xz": (b"\xfd7zXZ\x00",),
    "bzip2": tuple(b"BZh%d" % level for level in range(1, 10)),
}


class Reader(Protocol):
    """What is read from: a file, or what stands for one."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""


class _Decompressor(Protocol):
    """What the decompressors of the standard library share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Codec(NamedTuple):
    """What makes a decompressor, and what that raises where the data are not as they should be."""

    make: Callable[[], _Decompressor]
    broken: tuple[type[Exception], ...]


class Unpacked:
    """A stream's content, whether it is compressed or not."""

    def __init__(self, file: Reader, name: str) -> None:
        """Look at the first bytes. Raises InputError where nothing here can decompress them."""
        self.fault: str | None = None
        """Why the archive's rest could not be read; known at its end."""
        self._file = file
        self._head = file.read(_CHUNK)
        self.packing = packing_of(self._head)
        """`gzip`, `zstd`, `xz`, `bzip2`, or None."""
        self._codec = None if self.packing is None else _codec(self.packing, name)
        self._decompressor = None if self._codec is None else self._codec.make()

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size` where it is at least what was looked at; none at the end."""
        if self._decompressor is not None:
            return self._decompressed(size)
        if self._head:
            head, self._head = self._head[:size], self._head[size:]
            return head
        return self._file.read(size)

    def _decompressed(self, size: int) -> bytes:
        while self.fault is None and self._decompressor is not None and self._codec is not None:
            if self._decompressor.eof:
                self._next_member()
                continue
            data = b""
            if self._decompressor.needs_input:
                data, self._head = self._head or self._file.read(_CHUNK), b""
                if not data:
                    self.fault = "it is cut off"
                    break
            try:
                found = self._decompressor.decompress(data, size)
            except self._codec.broken:
                self.fault = "it is damaged"
                break
            if found:
                return found
        return b""

    def _next_member(self) -> None:
        """Go on with what follows a member; zeros that fill up a block of a tape or disk do not count."""
        assert self._decompressor is not None and self._codec is not None
        rest = self._decompressor.unused_data.lstrip(b"\0")
        while not rest:
            block = self._file.read(_CHUNK)
            if not block:
                self._decompressor = None
                return
            rest = block.lstrip(b"\0")
        while len(rest) < _LONGEST_MAGIC and (more := self._file.read(_CHUNK)):
            rest += more
        self._head = rest
        if packing_of(rest) == self.packing:
            self._decompressor = self._codec.make()
        else:
            self.fault = "what follows its end is something else"


class _Gzip:
    """zlib's decompressor of one gzip member, with the face of the others."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self._full = False
        """The last piece was as long as it may be: more may wait inside."""

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found: bytes = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        self._full = len(found) == max_length
        return found


def packing_of(head: bytes) -> str | None:
    """Return how what begins so is compressed; None where it is not."""
    return next((name for name, magics in _MAGIC.items() if head.startswith(magics)), None)


def beginning(file: Reader, name: str, size: int) -> bytes:
    """Return the first bytes of a file's content. Raises OSError, and InputError as Unpacked."""
    stream = Unpacked(file, name)
    found = b""
    while len(found) < size and (block := stream.read(size - len(found))):
        found += block
    return found


def _codec(packing: str, name: str) -> _Codec:
    if packing == "zstd":
        return _zstd(name)
    return {
        "gzip": _Codec(_Gzip, (zlib.error,)),
        "xz": _Codec(lzma.LZMADecompressor, (lzma.LZMAError,)),
        "bzip2": _Codec(bz2.BZ2Decompressor, (OSError, ValueError)),
    }[packing]


def _zstd(name: str) -> _Codec:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise InputError(
            f"{name} is compressed (zstd), and this Python cannot read that",
            f"{sys.executable} -m pip install backports.zstd, or decompress it first (unzstd)",
        ) from None
    return _Codec(zstd.ZstdDecompressor, (zstd.ZstdError,))


_LONGEST_MAGIC: Final = max(len(magic) for magics in _MAGIC.values() for magic in magics)
