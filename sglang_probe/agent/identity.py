"""Who writes: host, process, rank and device, each null until SGLang has said it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

from sglang_probe.agent.process import this_process
from sglang_probe.events.names import DeviceKind, ProcessRole

_FULL_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


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
        return {"index": self.index, "uuid": self.uuid, "name": self._name, "kind": self.kind}

    @property
    def uuid(self) -> str | None:
        """The device's UUID in NVML's spelling, as soon as it can be known without initialising CUDA."""
        if self._uuid is None and self.index is not None and self.kind != "cpu":
            self._uuid = self._uuid_of_torch() or uuid_of_visible_devices(self.index, os.environ)
        return self._uuid

    def use_device(self, device: object, index: int | None) -> None:
        """Note which device SGLang uses: `device` is its type (`cuda`, `cpu`, ...), `index` its gpu_id."""
        self.kind = device_kind(str(device)) if device is not None else self.kind
        self.index = index if index is not None else self.index

    def _uuid_of_torch(self) -> str | None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        properties = torch.cuda.get_device_properties(self.index)
        self._name = str(properties.name)
        uuid = str(getattr(properties, "uuid", "") or "")
        return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


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
