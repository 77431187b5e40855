"""AMD's management library, through its package `amdsmi`. Its devices go by PCI address: its UUIDs are not HIP's."""

from __future__ import annotations

import importlib
import os
from typing import Any

from sglang_probe.agent.health import Health
from sglang_probe.agent.process import holders


class Amdsmi:
    """amdsmi, where ROCm brought it. It is not used after a fork."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._library: Any = None
        self._why_not: tuple[str, str] | None = None
        self._pid = os.getpid()
        self._handles: dict[str, Any] = {}

    def usable(self, address: str | None) -> bool:
        """Tell whether amdsmi can be asked about the device at this PCI address; otherwise note why not."""
        why_not = self._why_not
        if os.getpid() != self._pid:
            why_not = ("after_fork", "amdsmi is not used in a forked child")
        elif self._library is None and why_not is None:
            why_not = self._why_not = self._open()
        if why_not is None and address is None:
            why_not = ("device_unknown", "torch has not told the device's PCI address")
        if why_not is not None:
            self._health.degrade("amdsmi", *why_not)
        return why_not is None

    def memory(self, address: str) -> dict[str, int]:
        """Return total and used bytes of the device; raises what amdsmi raises."""
        smi, handle = self._library, self._handle(address)
        vram = smi.AmdSmiMemoryType.VRAM
        return {
            "amdsmi_total_bytes": int(smi.amdsmi_get_gpu_memory_total(handle, vram)),
            "amdsmi_used_bytes": int(smi.amdsmi_get_gpu_memory_usage(handle, vram)),
        }

    def processes(self, address: str) -> dict[str, Any]:
        """Return the processes on the device, as amdsmi lists them; raises what amdsmi raises."""
        listed = self._library.amdsmi_get_gpu_process_list(self._handle(address))
        kept, left_out = holders((int(one["pid"]), _vram(one)) for one in listed)
        return {"amdsmi_processes": kept, "amdsmi_processes_left_out": left_out}

    def _open(self) -> tuple[str, str] | None:
        """Start the library; return why that failed, or None."""
        try:
            library = importlib.import_module("amdsmi")
        except ImportError as error:
            return ("package_not_found", f"{error}; ROCm brings it")
        except Exception as error:  # the package looks for its library, and for variables of ROCm's, as it loads
            return ("library_not_found", f"{type(error).__name__}: {error}")
        try:
            library.amdsmi_init(library.AmdSmiInitFlags.INIT_AMD_GPUS)
        except Exception as error:
            return ("library_not_found", f"{type(error).__name__}: {error}")
        self._library = library
        return None

    def _handle(self, address: str) -> Any:
        if address not in self._handles:
            self._handles[address] = self._library.amdsmi_get_processor_handle_from_bdf(address)
        return self._handles[address]


def _vram(process: dict[str, Any]) -> int | None:
    size = (process.get("memory_usage") or {}).get("vram_mem")
    return size if isinstance(size, int) else None
