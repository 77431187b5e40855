"""torch.cuda, NVML and amdsmi, as far as the agent may ask them, each keeping what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
FREE, TOTAL = 130_000_000_000, 150_000_000_000
POISON = "CUDA error: an illegal memory access was encountered"


class Cuda:
    """torch.cuda on a machine where this process has contexts on some devices."""

    def __init__(
        self, contexts: set[int], capturing: bool = False, properties: Mapping[str, object] | None = None
    ) -> None:
        self.contexts, self.capturing, self.asked = contexts, capturing, list[str]()
        self.properties = {"name": "NVIDIA H200", "uuid": UUID.removeprefix("GPU-"), **(properties or {})}

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.asked.append("mem_get_info")
        self.contexts.add(index)  # as CUDA does: asking makes a context
        return FREE, TOTAL

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        self.asked.append("memory_stats")
        figures = {"current": 10, "peak": 20}
        return {f"{name}_bytes": {"all": figures} for name in ("allocated", "reserved", "inactive_split")}

    def host_memory_stats_as_nested_dict(self) -> dict[str, Any]:
        self.asked.append("host_memory_stats")
        return {"allocated_bytes": {"current": 30}, "active_bytes": {"current": 5}}

    def memory_snapshot(self) -> list[dict[str, Any]]:
        self.asked.append("memory_snapshot")
        return [{"device": 0, "segment_pool_id": (0, pool), "total_size": 7} for pool in (0, 1, 1)]

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(**self.properties)

    def as_torch(self, *, hip: str | None = None) -> SimpleNamespace:
        """Return the torch of which this is `torch.cuda`."""
        core = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in self.contexts)
        return SimpleNamespace(cuda=self, _C=core, version=SimpleNamespace(hip=hip))


class Poisoned:
    """A torch whose context an error has poisoned: whatever it is asked, it raises that error."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.version = SimpleNamespace(hip=None, cuda="13.0")

    @property
    def cuda(self) -> Poisoned:
        return self

    _C = cuda

    def __getattr__(self, name: str) -> Any:
        if name == "is_initialized":  # a flag of torch's own, no call of CUDA's
            return lambda: True

        def refuse(*_: object, **__: object) -> Any:
            self.asked.append(name)
            raise RuntimeError(POISON)

        return refuse


class NotSupported(Exception):
    """NVML's error 3, which pynvml names NVMLError_NotSupported."""

    def __str__(self) -> str:
        return "Not Supported"


class FakeNvml(SimpleNamespace):
    """pynvml. `lacks` names functions that this device does not support, `held` the bytes of each process."""

    nvmlMemory_v2 = 2  # noqa: N815  # NVML's own name, as the next four

    def __init__(self, *lacks: str, uuid: str = UUID, held: dict[int, int | None] | None = None) -> None:
        super().__init__(asked=[], lacks=lacks, uuid=uuid, held={1: None} if held is None else held)

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self.lacks:
            raise NotSupported

    def nvmlInit(self) -> None:  # noqa: N802
        self._ask("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        assert uuid == self.uuid
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int) -> SimpleNamespace:  # noqa: N802
        self._ask("memory")
        assert (handle, version) == (self.uuid, self.nvmlMemory_v2)
        return SimpleNamespace(total=TOTAL + 5, reserved=5, used=TOTAL - FREE, free=FREE)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        self._ask("processes")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.held.items()]


class FakeAmdsmi(SimpleNamespace):
    """amdsmi with one device."""

    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")
    AmdSmiInitFlags = SimpleNamespace(INIT_AMD_GPUS="gpus")

    def __init__(self, address: str, pid: int) -> None:
        super().__init__(address=address, pid=pid)

    def amdsmi_init(self, flag: str) -> None:
        assert flag == "gpus"

    def amdsmi_get_processor_handle_from_bdf(self, address: str) -> str:
        assert address == self.address
        return address

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: str) -> int:
        return TOTAL + 5

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: str) -> int:
        return TOTAL - FREE

    def amdsmi_get_gpu_process_list(self, handle: str) -> list[dict[str, Any]]:
        return [
            {"pid": self.pid, "name": "python3", "mem": 9, "memory_usage": {"vram_mem": 8, "gtt_mem": 1}},
            {"pid": self.pid, "name": "N/A", "mem": "N/A", "memory_usage": {"vram_mem": "N/A"}},
        ]
