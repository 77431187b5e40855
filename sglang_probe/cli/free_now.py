"""What is free on the devices of a run this very moment, where this machine has them: a rank reads only between steps.

NVML is asked by UUID and needs no CUDA context. Where it is not there, or slow, what the ranks last read is shown.
"""

from __future__ import annotations

import importlib
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sglang_probe.report.watch_places import process_names
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import is_cpu

SLOW_S: Final = 0.1
"""A source that once takes longer is not asked again."""
MEMINFO: Final = Path("/proc/meminfo")


class FreeNow:
    """Asks the devices of ranks that run on this machine."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._opened = False

    def of(self, run: Run) -> dict[str, int]:
        """Return name (see `process_names`) -> bytes free, of the ranks whose devices can be asked."""
        names = process_names(run)
        here = [(one, name) for one, name in names if one.label is not None and one.alive and one.device is not None]
        host = _host_bytes() if any(is_cpu(process) for process, _ in here) else None
        begun = time.monotonic()
        found: dict[str, int] = {}
        for process, name in here:
            free = host if is_cpu(process) else self._device_bytes(process)
            if free is not None:
                found[name] = free
        if time.monotonic() - begun > SLOW_S:
            self._nvml, self._opened = None, True
        return found

    def _device_bytes(self, process: Process) -> int | None:
        uuid = None if process.device is None else process.device.uuid
        nvml = None if uuid is None else self._library()
        if nvml is None:
            return None
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).free)
        except Exception:  # noqa: BLE001 - another machine's GPU, a lost one, an old driver: NVML raises its own kind
            return None

    def _library(self) -> Any:
        if not self._opened:
            self._opened = True
            with suppress(Exception):  # no bindings, no driver
                library = importlib.import_module("pynvml")
                library.nvmlInit()
                self._nvml = library
        return self._nvml


def _host_bytes() -> int | None:
    with suppress(OSError, ValueError):
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
