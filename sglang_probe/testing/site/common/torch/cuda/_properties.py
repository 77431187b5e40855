"""What a device says about itself."""

from __future__ import annotations

from fakegpu.cuda import Cuda, uuid_of


class _CUuuid:
    """A device UUID: its text has no `GPU-` in front, unlike NVML's."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    @property
    def bytes(self) -> bytes:
        return bytes.fromhex(self._text.replace("-", ""))


class DeviceProperties:
    """Name, total memory in bytes and UUID of a device."""

    is_integrated = False
    major = 9
    minor = 0

    def __init__(self, name: str, total_memory: int, uuid: _CUuuid) -> None:
        self.name, self.total_memory, self.uuid = name, total_memory, uuid


def properties_of(process: Cuda, device: int) -> DeviceProperties:
    """Return the properties of `device`. Raises RuntimeError where there is none."""
    gpu = process.physical(device)
    return DeviceProperties(process.card.name, process.card.cuda_total_bytes, _CUuuid(uuid_of(gpu)))
