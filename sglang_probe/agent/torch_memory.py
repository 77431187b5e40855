"""What torch says about memory, asked so that nothing is made by asking.

`mem_get_info` is asked only with an explicit index and only where this process already has a primary context on that
device: without one the question itself would make a context of about half a GiB. The allocators' figures need no CUDA
call, so they come from a context that an error has poisoned, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def capturing() -> bool:
    """Tell whether a CUDA graph is being captured on this thread's stream. Raises what torch raises."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except Exception as error:
        if "captur" in str(error):  # CUDA refuses to tell of a stream that would have to wait for a capturing one
            return True
        raise


def has_context(index: int) -> bool:
    """Tell whether this process has a CUDA primary context on the device, without making one."""
    torch = sys.modules.get("torch")
    try:
        return torch is not None and torch.cuda.is_initialized() and bool(torch._C._cuda_hasPrimaryContext(index))
    except Exception:  # not knowing is no leave to ask: the careless question costs 520 MB
        return False


def device(index: int) -> dict[str, int]:
    """Return free and total bytes of the device, which must have a context of this process."""
    free, total = _cuda().mem_get_info(index)
    return {"device_free_bytes": int(free), "device_total_bytes": int(total)}


def allocator(index: int) -> dict[str, int | None]:
    """Return the figures of torch's caching allocator on the device."""
    stats = _cuda().memory_stats_as_nested_dict(index)
    reading: dict[str, int | None] = {}
    for name in ("allocated", "reserved"):
        pool = _all(stats, f"{name}_bytes")
        reading[f"torch_{name}_bytes"] = pool.get("current")
        reading[f"torch_peak_{name}_bytes"] = pool.get("peak")
    reading["torch_inactive_split_bytes"] = _all(stats, "inactive_split_bytes").get("current")
    return reading


def pinned() -> dict[str, int | None]:
    """Return the page-locked host bytes that torch holds, in use or cached; NotImplementedError from an older torch."""
    ask = getattr(_cuda(), "host_memory_stats_as_nested_dict", None)
    if ask is None:
        raise NotImplementedError("not supported by this torch")
    stats = ask()
    # At first what the allocator holds was called reserved, and allocated what is in use; now that is called active.
    held = stats.get("reserved_bytes") or stats.get("allocated_bytes") or {}
    return {"torch_pinned_bytes": held.get("current")}


def private_pools(index: int) -> int:
    """Return the bytes of private (CUDA graph) pools on the device. Walks every segment: not for every boundary."""
    private = (s for s in _cuda().memory_snapshot() if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0))
    return sum(int(segment["total_size"]) for segment in private if segment.get("device") == index)


def pci_address(index: int) -> str | None:
    """Return the device's PCI address, `0000:c1:00.0`, or None where torch does not tell or has not come up."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    properties = torch.cuda.get_device_properties(index)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    if not all(isinstance(getattr(properties, name, None), int) for name in names):
        return None
    domain, bus, number = (getattr(properties, name) for name in names)
    return f"{domain:04x}:{bus:02x}:{number:02x}.0"


def _all(stats: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = ((stats or {}).get(name) or {}).get("all") or {}
    return found


def _cuda() -> Any:
    return sys.modules["torch"].cuda
