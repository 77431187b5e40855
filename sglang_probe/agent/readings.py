"""Readings of memory at a boundary, from torch, the driver's library and the host, none of which may be perturbed.

Nothing is read while a CUDA graph is being captured. Where torch cannot say whether one is, because an error has
poisoned its context, CUDA is asked nothing more: torch's own figures and NVML's need no CUDA call.
"""

from __future__ import annotations

from typing import Any

from sglang_probe.agent import host, torch_memory
from sglang_probe.agent.amdsmi import Amdsmi
from sglang_probe.agent.health import Health
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.process import MAX_PROCESSES
from sglang_probe.agent.sources import Sources, Visit
from sglang_probe.events.envelope import DELTA_KEYS, READING_KEYS

_CAPTURE = "nothing is read while a CUDA graph is being captured"
_NO_LIST = "under WSL the driver lists no processes"


class Readings:
    """Reads memory of one process. `device` says which: (kind, index, uuid) as known at that moment."""

    def __init__(self, health: Health, nvml: Nvml) -> None:
        self._health = health
        self._nvml = nvml
        self._amdsmi = Amdsmi(health)
        self._sources = Sources(health)

    def read(self, kind: str | None, index: int | None, uuid: str | None, *, processes: bool) -> dict[str, Any]:
        """Return a reading; what could not be read is None and its reason goes to the event's `degraded`."""
        reading: dict[str, Any] = dict.fromkeys(READING_KEYS)
        visit = self._sources.visit()
        capturing = visit.ask("torch_capture", torch_memory.capturing)
        if capturing:
            self._health.degrade("readings", "graph_capture", _CAPTURE)
            return reading
        reading.update(visit.ask("host", host.memory) or {})
        if kind == "cpu":  # the host's memory is the device's
            reading["device_total_bytes"] = host.meminfo("MemTotal")
            reading["device_free_bytes"] = reading["host_available_bytes"]
        elif kind == "other":
            self._sources.lacks("readings", "device_kind", "the probe reads the memory of CUDA and ROCm devices alone")
        elif index is None:
            self._health.degrade("identity", "device_unknown", "SGLang has not said yet which device this rank uses")
        else:
            reading.update(self._torch(visit, index, answers=capturing is not None))
            reading.update(self._of_driver(visit, kind, index, uuid, processes))
        return reading

    def device_free(self, kind: str | None, index: int | None) -> int | None:
        """Return the bytes free on the device alone: the cheapest of all readings."""
        if kind == "cpu":
            return host.meminfo("MemAvailable")
        visit = self._may_ask(index)
        found = None if visit is None or index is None else visit.ask("torch", lambda: torch_memory.device(index))
        return None if found is None else found["device_free_bytes"]

    def private_pools(self, index: int | None) -> int | None:
        """Return the bytes torch holds in private (CUDA graph) pools, or None where torch does not tell."""
        visit = self._may_ask(index)
        if visit is None or index is None:
            return None
        return visit.ask("torch_snapshot", lambda: torch_memory.private_pools(index))

    def _may_ask(self, index: int | None) -> Visit | None:
        """Return a round of questions where CUDA may be asked about the device."""
        if index is None:
            return None
        visit = self._sources.visit()
        quiet = visit.ask("torch_capture", torch_memory.capturing) is False
        return visit if quiet and torch_memory.has_context(index) else None

    def _torch(self, visit: Visit, index: int, *, answers: bool) -> dict[str, Any]:
        """Return torch's part; `answers` says whether CUDA does."""
        if not answers:
            self._health.degrade("torch", "not_asked", "CUDA does not even say whether a graph is being captured")
        elif not torch_memory.has_context(index):
            self._health.degrade("torch", "no_context", f"this process has no CUDA context on device {index} yet")
            return {}
        device = visit.ask("torch", lambda: torch_memory.device(index)) if answers else None
        allocator = visit.ask("torch_stats", lambda: torch_memory.allocator(index))
        pinned = visit.ask("torch_pinned", torch_memory.pinned)
        return {**(device or {}), **(allocator or {}), **(pinned or {})}

    def _of_driver(
        self, visit: Visit, kind: str | None, index: int, uuid: str | None, processes: bool
    ) -> dict[str, Any]:
        """Return what the driver's library tells: amdsmi on ROCm, NVML elsewhere."""
        if kind == "rocm":
            return self._of_amdsmi(visit, index, processes)
        if not self._nvml.usable(uuid) or uuid is None:
            return {}
        reading: dict[str, Any] = dict(visit.ask("nvml", lambda: self._nvml.memory(uuid)) or {})
        if processes and host.is_wsl():
            self._sources.lacks("nvml_processes", "wsl", _NO_LIST)
        elif processes:
            reading.update(visit.ask("nvml_processes", lambda: self._nvml.processes(uuid)) or {})
            if reading.get("nvml_processes_left_out"):
                self._health.degrade("nvml_processes", "list_cut", f"the {MAX_PROCESSES} largest were kept")
        return reading

    def _of_amdsmi(self, visit: Visit, index: int, processes: bool) -> dict[str, Any]:
        address = visit.ask("amdsmi", lambda: torch_memory.pci_address(index))
        if not self._amdsmi.usable(address) or address is None:
            return {}
        reading: dict[str, Any] = dict(visit.ask("amdsmi", lambda: self._amdsmi.memory(address)) or {})
        if processes:
            reading.update(visit.ask("amdsmi_processes", lambda: self._amdsmi.processes(address)) or {})
        return reading


def delta(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, int | None] | None:
    """Return after - before key by key, None where either side is unknown."""
    if before is None or after is None:
        return None
    return {key: None if before[key] is None or after[key] is None else after[key] - before[key] for key in DELTA_KEYS}
