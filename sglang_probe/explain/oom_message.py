"""Out-of-memory errors in the words of torch, CUDA, HIP and NCCL: what was wanted, what was free, who held the rest.

Wordings: torch up to 2.0 and torch_npu ("(GPU 0; 79.15 GiB total capacity; ... already allocated; ... free; ...
reserved in total by PyTorch)", before 1.6 "cached"), torch 2.1 on ("GPU 0 has a total capacity of ... of which ... is
free. ... this process has ... memory in use. [... allowed;] Of the allocated memory ... is allocated by PyTorch, [with
... allocated in private pools,] and ... is reserved by PyTorch but unallocated"; 2.1 spells it "capacty"),
cudaMallocAsync's ("Currently allocated : ..., Requested : ..."), and the calls beneath that give no numbers. Figures
have two decimals in a unit of their own: one below 1 GiB is good to some KiB. A message may be cut anywhere.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

from sglang_probe.collect.logs.memory_words import HOST
from sglang_probe.explain.sayings import saying_in

_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = r"(?P<{}>\d[\d.]* (?:bytes|[KMGT]iB))"
_WORDS: Final = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MUSA|HPU|MPS backend) out of memory|out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|Failed to CUDA (?:calloc|malloc)"
    r"|cudaMalloc\w* failed|would exceed allowed memory",
    re.IGNORECASE,
)
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"Tried to allocate " + _SIZE.format("wanted"),
        r"Requested\s*: " + _SIZE.format("wanted"),
        r"total capaci?ty of " + _SIZE.format("total"),
        _SIZE.format("total") + r" total capacity",
        r"Device limit\s*: " + _SIZE.format("total"),
        r"of which " + _SIZE.format("free") + r" is free",
        r"; " + _SIZE.format("free") + r" free",
        r"Free \(according to CUDA\)\s*: " + _SIZE.format("free"),
        r"this process has " + _SIZE.format("process") + r" memory in use",
        _SIZE.format("allocated") + r" is allocated by PyTorch",
        _SIZE.format("allocated") + r" already allocated",
        r"Currently allocated\s*: " + _SIZE.format("allocated"),
        r"with " + _SIZE.format("private") + r" allocated in private pools",
        _SIZE.format("unallocated") + r" is reserved by PyTorch but unallocated",
        _SIZE.format("reserved") + r" (?:reserved in total by PyTorch|cached)",
        r"in use\. " + _SIZE.format("allowed") + r" allowed",
    )
)
ABSURD: Final = 1 << 44
"""16 TiB: no process holds that of one device."""
_ROUNDED: Final = 64 << 20
"""Figures of two decimals, and what the driver rounds to: three sums of GiB may be off by this."""
_WORTH_NAMING: Final = 1 << 30
"""Less than that may be the driver's, or a context that no message counts."""
_OTHERS: Final = re.compile(r"Process (\d{1,18}) has (\d[\d.]* (?:bytes|[KMGT]iB)) memory in use")
_DEVICE: Final = re.compile(r"\b(?:GPU|NPU|XPU) (\d{1,5})\b|\bon device (\d{1,5})\b")


class OutOfMemory(NamedTuple):
    """What a message says, in bytes rounded as it rounds; None where it does not say."""

    wanted: int | None = None
    total: int | None = None
    free: int | None = None
    process: int | None = None
    """This process's, what lies outside PyTorch included."""
    allocated: int | None = None
    private: int | None = None
    """Of the allocated, in private pools: CUDA graphs."""
    unallocated: int | None = None
    """Reserved by PyTorch and not allocated."""
    others: tuple[tuple[int, int], ...] = ()
    """(pid, bytes) of the other processes that it names."""
    allowed: int | None = None
    """What this process may hold at most, where a limit is set."""
    device: int | None = None
    """As torch counts: below CUDA_VISIBLE_DEVICES."""
    good_to: tuple[tuple[str, int], ...] = ()
    """(name of a figure, bytes that it may be off)."""

    def precision(self, *names: str) -> int:
        """Return how far off a sum of figures may be: their own errors, added up."""
        known = dict(self.good_to)
        return sum(known.get(name, 0) for name in names)

    @property
    def short(self) -> int | None:
        """Return by how much the free memory fell short of what was wanted; negative: it was there, in pieces."""
        return None if self.wanted is None or self.free is None else self.wanted - self.free

    @property
    def outside(self) -> int | None:
        """Return what the process holds outside PyTorch: context, NCCL, graphs, libraries."""
        if self.process is None or self.allocated is None or self.unallocated is None:
            return None
        return self.process - self.allocated - self.unallocated

    @property
    def unnamed(self) -> int | None:
        """Return what is neither free, nor this process's, nor of one that is named: others hold it. None: unknown."""
        if self.total is None or self.free is None or self.process is None:
            return None
        left = self.total - self.free - self.process - sum(size for _, size in self.others)
        return left if left > _WORTH_NAMING else None


def parse(message: str) -> OutOfMemory | None:
    """Return what an out-of-memory error of the device says; None where the message is none."""
    if not _WORDS.search(message) or ("Tried to allocate" not in message and _is_another_s(message)):
        return None
    texts: dict[str, str] = {}
    for pattern in _PATTERNS:
        match = pattern.search(message)
        for name, text in ({} if match is None else match.groupdict()).items():
            texts.setdefault(name, text)
    found = {name: size for name, text in texts.items() if (size := _bytes(text)) is not None}
    good_to = {name: _good_to(texts[name]) for name in found}
    reserved = found.pop("reserved", None)
    if reserved is not None and "allocated" in found and "unallocated" not in found:
        found["unallocated"] = reserved - found["allocated"]
        good_to["unallocated"] = good_to["reserved"] + good_to["allocated"]
    if found.get("process", 0) > ABSURD:  # torch reads an unsigned -1 where the driver does not say
        del found["process"]
    device = _DEVICE.search(message)
    others = tuple((int(pid), size) for pid, text in _OTHERS.findall(message) if (size := _bytes(text)) is not None)
    said = OutOfMemory(
        **found,
        others=others,
        device=None if device is None else int(device[1] or device[2]),
        good_to=tuple(good_to.items()),
    )
    return _with_own(said, {pid: _good_to(text) for pid, text in _OTHERS.findall(message)})


def _is_another_s(message: str) -> bool:
    """Say whether it speaks of the host's memory, or of a pool of SGLang's own."""
    return HOST.search(message) is not None or saying_in(message) is not None


def _with_own(said: OutOfMemory, good_to: dict[str, int]) -> OutOfMemory:
    """Tell this process from the others where torch did not: in a container it looks for its own pid in vain.

    It is the one that holds at least what PyTorch holds, and with what is free makes up the device.
    """
    if said.process is not None or said.allocated is None or said.total is None or said.free is None:
        return said
    own = [one for one in said.others if one[1] >= said.allocated]
    if len(own) != 1 or abs(sum(size for _, size in said.others) + said.free - said.total) > _ROUNDED:
        return said
    return said._replace(
        process=own[0][1],
        others=tuple(one for one in said.others if one != own[0]),
        good_to=(*said.good_to, ("process", good_to.get(str(own[0][0]), 0))),
    )


def is_host_memory(message: str) -> bool:
    """Say whether a message is about the host's memory or shared memory, which no fraction of a GPU moves."""
    return parse(message) is None and HOST.search(message) is not None


def shown(count: int) -> str:
    """Return bytes as torch writes them, in the unit that fits: `200.75 MiB`, `139.86 GiB`."""
    unit = next((name for name in ("GiB", "MiB", "KiB") if abs(count) >= _UNITS[name]), "bytes")
    return f"{count} bytes" if unit == "bytes" else f"{count / _UNITS[unit]:.2f} {unit}"


_PIECES: Final = ", which would have been enough: in pieces that are too small, or beyond a limit that was set"


def figures_of(said: OutOfMemory) -> str:
    """Say what the message says, with the decimals that it has."""
    parts = []
    if said.wanted is not None and said.free is not None:
        short = f": short by {shown(said.short or 0)}" if (said.short or 0) > 0 else _PIECES
        parts.append(f"Wanted {shown(said.wanted)}, free {shown(said.free)}{short}.")
    elif said.wanted is not None:
        parts.append(f"Wanted {shown(said.wanted)}.")
    if said.process is not None and said.allocated is not None and said.outside is not None:
        cached = "" if said.unallocated is None else f" + {shown(said.unallocated)} in its cache"
        parts.append(
            f"The process holds {shown(said.process)}: {shown(said.allocated)} allocated by PyTorch{cached}, so"
            f" {shown(said.outside)} are outside PyTorch (context, NCCL, libraries)."
        )
    elif said.allocated is not None:
        cached = "" if said.unallocated is None else f" and {shown(said.unallocated)} in its cache"
        parts.append(f"PyTorch has {shown(said.allocated)} allocated{cached}.")
    if said.others:
        parts.append(f"Others hold {', '.join(f'{shown(size)} (pid {pid})' for pid, size in said.others[:4])}.")
    if said.unnamed is not None:
        parts.append(f"{shown(said.unnamed)} of the card are held by processes that the message does not name.")
    if said.allowed is not None:
        parts.append(f"The process may hold {shown(said.allowed)} at most: a limit is set.")
    return " ".join(parts) + (" " if parts else "")


def numbers_of(said: OutOfMemory) -> dict[str, Any]:
    """Return the same for a program, by the names of a finding's numbers."""
    return {
        "wanted_bytes": said.wanted,
        "free_said_bytes": said.free,
        "process_bytes": said.process,
        "torch_allocated_bytes": said.allocated,
        "torch_reserved_unallocated_bytes": said.unallocated,
        "outside_torch_bytes": said.outside,
        "precision_bytes": said.precision("process", "allocated", "unallocated") or said.precision("wanted", "free"),
    }


def _bytes(text: str) -> int | None:
    figure, unit = text.split()
    try:
        size = float(figure) * _UNITS[unit]
    except ValueError:  # "1.2.3": no number of torch's
        return None
    return round(size) if math.isfinite(size) else None


def _good_to(text: str) -> int:
    """Return half a unit of the last decimal: of `200.75 MiB` 5243 bytes."""
    figure, unit = text.split()
    decimals = len(figure.partition(".")[2])
    return 0 if unit == "bytes" else math.ceil(_UNITS[unit] / 10 ** min(decimals, 9) / 2)
