"""Readings of memory at a boundary, from torch, NVML and the host, none of which may be perturbed.

`mem_get_info` is asked only with an explicit index and only where this process already has a primary context on that
device: without one the question itself would make a context of about half a GiB. Nothing is read while a CUDA graph is
being captured. A source that once takes over 100 ms is not asked again in this process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sglang_probe.agent.health import Health, comes_from_signal_handler
from sglang_probe.agent.nvml import Nvml
from sglang_probe.events.envelope import DELTA_KEYS, READING_KEYS

SLOW_SOURCE_NS = 100_000_000

T = TypeVar("T")


class Readings:
    """Reads memory of one process. `device` says which: (kind, index, uuid) as known at that moment."""

    def __init__(self, health: Health, nvml: Nvml) -> None:
        self._health = health
        self._nvml = nvml
        self._slow: set[str] = set()

    def read(self, kind: str | None, index: int | None, uuid: str | None, *, processes: bool) -> dict[str, Any]:
        """Return a reading; what could not be read is None and its reason goes to the event's `degraded`."""
        reading: dict[str, Any] = dict.fromkeys(READING_KEYS)
        if capturing():
            self._health.degrade("readings", "graph_capture", "nothing is read while a CUDA graph is being captured")
            return reading
        reading.update(self._ask("host", host_memory) or {})
        if kind == "cpu":  # the host's memory is the device's
            reading["device_total_bytes"] = _meminfo("MemTotal")
            reading["device_free_bytes"] = reading["host_available_bytes"]
            return reading
        if index is None:
            self._health.degrade("identity", "device_unknown", "SGLang has not said yet which device this rank uses")
            return reading
        reading.update(self._torch(index))
        if self._nvml.usable(uuid):
            reading.update(self._ask("nvml", lambda: self._nvml.memory(str(uuid))) or {})
            if processes:
                reading["nvml_processes"] = self._ask("nvml_processes", lambda: self._nvml.processes(str(uuid)))
        return reading

    def device_free(self, kind: str | None, index: int | None) -> int | None:
        """Return the bytes free on the device alone: the cheapest of all readings."""
        if kind == "cpu":
            return _meminfo("MemAvailable")
        if index is None or capturing() or not has_context(index):
            return None
        info = self._ask("torch", lambda: _cuda().mem_get_info(index))
        return None if info is None else int(info[0])

    def private_pools(self, index: int | None) -> int | None:
        """Return the bytes torch holds in private (CUDA graph) pools, or None where torch does not tell."""
        if index is None or capturing() or not has_context(index):
            return None
        segments = self._ask("torch_snapshot", lambda: _cuda().memory_snapshot())
        if segments is None:
            return None
        private = (s for s in segments if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0))
        return sum(int(segment["total_size"]) for segment in private if segment.get("device") == index)

    def _torch(self, index: int) -> dict[str, Any]:
        if not has_context(index):
            self._health.degrade("torch", "no_context", f"this process has no CUDA context on device {index} yet")
            return {}
        reading: dict[str, Any] = {}
        info = self._ask("torch", lambda: _cuda().mem_get_info(index))
        if info is not None:
            reading["device_free_bytes"], reading["device_total_bytes"] = int(info[0]), int(info[1])
        stats = self._ask("torch_stats", lambda: _cuda().memory_stats_as_nested_dict(index))
        for name in ("allocated", "reserved"):
            pool = ((stats or {}).get(f"{name}_bytes") or {}).get("all") or {}
            reading[f"torch_{name}_bytes"] = pool.get("current")
            reading[f"torch_peak_{name}_bytes"] = pool.get("peak")
        return reading

    def _ask(self, source: str, question: Callable[[], T]) -> T | None:
        if source in self._slow:
            self._health.degrade(source, "slow_source", "not asked again in this process")
            return None
        began = time.perf_counter_ns()
        try:
            return question()
        except Exception as error:  # a poisoned context, a driver that went away: the phase goes on, the event too
            if comes_from_signal_handler(error):
                raise
            self._health.degrade(source, "read_failed", f"{type(error).__name__}: {error}")
            return None
        finally:
            taken = time.perf_counter_ns() - began
            if taken > SLOW_SOURCE_NS:
                self._slow.add(source)
                self._health.degrade(source, "slow_source", f"took {taken / 1e6:.0f} ms")


def delta(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, int | None] | None:
    """Return after - before key by key, None where either side is unknown."""
    if before is None or after is None:
        return None
    return {key: None if before[key] is None or after[key] is None else after[key] - before[key] for key in DELTA_KEYS}


def has_context(index: int) -> bool:
    """Tell whether this process has a CUDA primary context on the device, without making one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        return bool(torch._C._cuda_hasPrimaryContext(index))
    except Exception:  # not knowing is no leave to ask: the careless question costs 520 MB
        return False


def capturing() -> bool:
    """Tell whether a CUDA graph is being captured on this thread's stream."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except Exception:  # where torch cannot say, nothing can be capturing
        return False


def host_memory() -> dict[str, int | None]:
    """Return this process's resident bytes and the host's available bytes."""
    rss = None
    try:
        with open("/proc/self/statm", "rb") as file:
            rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    return {"host_rss_bytes": rss, "host_available_bytes": _meminfo("MemAvailable")}


def _meminfo(field: str) -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cuda() -> Any:
    return sys.modules["torch"].cuda
