"""In whose words memory ran out: the device's allocator, a sum of SGLang's own that came out too small, or the host.

The same families as those that `explain` tells apart in events; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any, Final

_SHORT: Final = (
    ("fraction", re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static")),
    ("weights", re.compile(r"Loaded weights leave no GPU memory")),
    (
        "pool",
        re.compile(
            r"Not enough GPU memory for hybrid|state cache is too small to serve|Not enough space for mamba"
            r"|leaves no room for the full|SWA pool .*cannot hold|leaves no room for real data"
            r"|Memory pool size is too small|cannot fit ONE worst-case request|Out of memory even after retracting"
            r"|alloc_req_slots runs out of memory|No space left for only one request"
            r"|(?:Prefill|Decode)? ?[Oo]ut of memory\.? (?:Try to lower your batch size|This should never happen"
            r"|Please set a smaller number for)"
            r"|int8 mamba checkpoint pool needs|(?:KV cache|req_pool_indices) is full! (?:There is a b|B)ug in memory"
            r"|pool exhausted: need \d+ new slots|prefill scratch of \d+ pages",
        ),
    ),
)
"""The sums that come out too small, each with its family."""
_FRACTION: Final = re.compile(
    r"(?:under --mem-fraction-static=|Current value: (?:self\.server_args\.)?mem_fraction_static=)(\d(?:\.\d+)?)"
)
_RAISE: Final = re.compile(r"Raise --mem-fraction-static above (\d\.\d+)")
_MINIMUM: Final = re.compile(r"minimum viable = 1 - available/pre = (-?\d+\.\d+)")
_DEVICE: Final = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MUSA) out of memory|out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|Failed to CUDA (?:calloc|malloc)"
    r"|cudaMalloc\w* failed",
    re.IGNORECASE,
)
_LOGGED: Final = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MUSA)(?: error:)? out of memory|OutOfMemoryError|Tried to allocate|CUBLAS_STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|Failed to CUDA (?:calloc|malloc)"
    r"|cudaMalloc\w* failed|failed \w* ?'out of memory'",
)
"""A line that is no exception may also advise how to avoid it."""
HOST: Final = re.compile(
    r"Cannot allocate memory|DefaultCPUAllocator|std::bad_alloc|MemoryError|out of resource: shared memory"
    r"|shared memory|/dev/shm|Bus error|host memory|cudaHostAlloc|cudaHostRegister|pinned memory",
    re.IGNORECASE,
)
"""Memory all the same, and not the device's."""
_RETRACTED: Final = re.compile(r"decode out of memory happened", re.IGNORECASE)
"""A server that goes on: it takes requests back, and nothing failed."""


def no_memory(text: str) -> dict[str, Any] | None:
    """Return the values of a `no_memory` fact where SGLang says that a pool has no room; None where it does not."""
    family = next((name for name, words in _SHORT if words.search(text)), None)
    if family is None:
        return None
    found: dict[str, Any] = {"family": family}
    for name, pattern in (("fraction", _FRACTION), ("raise_above", _RAISE), ("minimum", _MINIMUM)):
        match = pattern.search(text)
        if match:
            found[name] = float(match[1])
    return found


def is_out_of_memory(text: str, *, raised: bool = True) -> bool:
    """Say whether the device's allocator, or a library of its vendor's, says that its memory ran out."""
    if not (_DEVICE if raised else _LOGGED).search(text) or _RETRACTED.search(text):
        return False
    return "Tried to allocate" in text or (no_memory(text) is None and HOST.search(text) is None)
