"""Who writes: host, process, rank and device, each null until SGLang has said it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

from sglang_probe.agent.health import comes_from_signal_handler
from sglang_probe.agent.host import is_wsl
from sglang_probe.agent.process import this_process
from sglang_probe.events.names import DeviceKind, ProcessRole

# Before driver 470 a slice was spelled by its card and two numbers: MIG-GPU-<uuid>/1/0.
_FULL_UUID = re.compile(r"(GPU|MIG|MIG-GPU)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/\d+/\d+)?", re.IGNORECASE)


class Identity:
    """The identity of this process, as far as it is known. Read by every event, written by the hooks."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.role: ProcessRole
        self.rank: dict[str, Any] | None
        self.kind: DeviceKind | None = None
        self.index: int | None = None
        self._uuid: str | None = None
        self._name: str | None = None
        self._traits: list[str] | None = None
        self._asked = False
        self.renew()

    def renew(self) -> None:
        """Find out which process this is: at the start and in a forked child, which is no rank even of a scheduler."""
        self.role, self.rank = "other", None
        key = this_process()
        self._process = {
            "run_id": self.run_id,
            "host": socket.gethostname(),
            "boot_id": key.boot_id,
            "pid": key.pid,
        }
        self._start_ticks = key.start_ticks
        self._parent = os.getppid()

    def fields(self) -> Mapping[str, Any]:
        """Return the envelope's fields of identity."""
        return {
            **self._process,
            "proc": {"start_ticks": self._start_ticks, "parent": self._parent, "role": self.role},
            "rank": self.rank,
            "device": self.device(),
        }

    def device(self) -> dict[str, Any] | None:
        """Return the device of this rank, or None until SGLang has said which."""
        if self.kind is None and self.index is None:
            return None
        uuid = self.uuid
        return {"index": self.index, "uuid": uuid, "name": self._name, "kind": self.kind, "traits": self._traits}

    @property
    def uuid(self) -> str | None:
        """The device's UUID in NVML's spelling, as soon as it can be known without initialising CUDA."""
        if not self._asked and self.index is not None and self.kind in ("cuda", "rocm", None):
            self._ask_torch(self.index)
        return self._uuid

    def use_device(self, device: object, index: int | None) -> None:
        """Note which device SGLang uses: `device` is its type (`cuda`, `cpu`, ...), `index` its gpu_id."""
        before = self.kind, self.index
        self.kind = device_kind(str(device)) if device is not None else self.kind
        self.index = index if index is not None else self.index
        if (self.kind, self.index) != before:
            self._uuid, self._name, self._asked = None, None, False
            self._traits = traits(None, None) if self.kind in ("cpu", "other") else None

    def _ask_torch(self, index: int) -> None:
        """Ask torch about the device once CUDA is up in this process: that makes no context. It never raises."""
        torch = sys.modules.get("torch")
        spelled_out = uuid_of_visible_devices(index, os.environ)
        try:
            if torch is None or not torch.cuda.is_initialized():
                self._uuid = spelled_out
                return
            self._asked = True
            properties = torch.cuda.get_device_properties(index)
        except Exception as error:  # a context that an error has poisoned tells nothing
            if comes_from_signal_handler(error):
                raise
            self._uuid = self._uuid or spelled_out
            return
        self._name = str(properties.name)
        self._uuid = _uuid_of(properties, spelled_out)
        self._traits = traits(self._uuid, properties)


def traits(uuid: str | None, properties: Any) -> list[str]:
    """Return what sets a device's memory apart from that of a card of its own."""
    found = {
        "mig": (uuid or "").startswith("MIG-"),
        "integrated": bool(getattr(properties, "is_integrated", False)),
        "wsl": is_wsl(),
    }
    return [name for name, true in found.items() if true]


def _uuid_of(properties: Any, spelled_out: str | None) -> str | None:
    """Return the UUID in NVML's spelling: torch leaves the prefix out, and only the name tells a slice from a card."""
    uuid = str(getattr(properties, "uuid", None) or "")
    is_slice = " MIG " in str(properties.name)
    if not uuid or (is_slice and (spelled_out or "").startswith("MIG-")):
        return spelled_out
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"{'MIG' if is_slice else 'GPU'}-{uuid}"


def device_kind(device: str) -> DeviceKind:
    """Return the kind of a torch device type; HIP answers under the name cuda."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        torch = sys.modules.get("torch")
        return "rocm" if torch is not None and getattr(torch.version, "hip", None) else "cuda"
    return "cpu" if kind == "cpu" else "other"


def uuid_of_visible_devices(index: int, environ: Mapping[str, str]) -> str | None:
    """Return the UUID of a device where CUDA_VISIBLE_DEVICES spells it out in full, else None."""
    visible = [part.strip() for part in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if index < len(visible) and _FULL_UUID.fullmatch(visible[index]):
        return visible[index]
    return None
