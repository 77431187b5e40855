"""NVML, by UUID only: CUDA's device index is not NVML's, and MIG slices have no index at all.

It needs no CUDA context. It is not used after a fork: a handle of the parent's is none of the child's.
"""

from __future__ import annotations

import importlib
from typing import Any

from sglang_probe.agent.health import Health
from sglang_probe.agent.process import holders


class Nvml:
    """NVML through the module `pynvml` of nvidia-ml-py, where SGLang brought it."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._library: Any = None
        self._why_not: tuple[str, str] | None = None
        self._handles: dict[str, Any] = {}

    def usable(self, uuid: str | None) -> bool:
        """Tell whether NVML can be asked about this device; otherwise note why not."""
        if self._library is None and self._why_not is None:
            self._open()
        if self._why_not is not None:
            self._health.degrade("nvml", *self._why_not)
            return False
        if uuid is None:
            self._health.degrade("nvml", "uuid_unknown", "the device's UUID is known once CUDA is initialised here")
            return False
        return True

    def memory(self, uuid: str) -> dict[str, int]:
        """Return total, reserved, used and free bytes by NVML's v2 struct; raises what NVML raises."""
        nvml = self._library
        info = nvml.nvmlDeviceGetMemoryInfo(self._handle(uuid), version=nvml.nvmlMemory_v2)
        return {
            "nvml_total_bytes": int(info.total),
            "nvml_reserved_bytes": int(info.reserved),
            "nvml_used_bytes": int(info.used),
            "nvml_free_bytes": int(info.free),
        }

    def processes(self, uuid: str) -> dict[str, Any]:
        """Return the compute processes on the device, as NVML lists them; raises what NVML raises."""
        listed = self._library.nvmlDeviceGetComputeRunningProcesses(self._handle(uuid))
        sizes = ((int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in listed)
        kept, left_out = holders(sizes)
        return {"nvml_processes": kept, "nvml_processes_left_out": left_out}

    def forget(self) -> None:
        """In a forked child: never ask again."""
        self._library, self._handles, self._why_not = None, {}, ("after_fork", "NVML is not used in a forked child")

    def _open(self) -> None:
        try:
            library = importlib.import_module("pynvml")
        except ImportError as error:
            self._why_not = ("package_not_found", f"{error}; pip install nvidia-ml-py")
            return
        try:
            library.nvmlInit()
        except Exception as error:  # no driver, no library, no permission: each says so in its own words
            self._why_not = ("library_not_found", f"{type(error).__name__}: {error}")
            return
        self._library = library

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._library.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]
