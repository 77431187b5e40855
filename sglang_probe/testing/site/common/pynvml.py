"""A stand-in for `pynvml` (of nvidia-ml-py): NVML on fake GPUs. It needs no CUDA context and makes none."""

from __future__ import annotations

from fakegpu.cuda import NoDriver, cuda, uuid_of

NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_LIBRARY_NOT_FOUND = 12
nvmlMemory_v2 = 0x02000028

_TEXTS = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized",
    NVML_ERROR_INVALID_ARGUMENT: "Invalid Argument",
    NVML_ERROR_NOT_FOUND: "Not Found",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
}


class NVMLError(Exception):
    """NVML refused; `value` is its code."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return _TEXTS.get(self.value, f"NVML error {self.value}")


class c_nvmlDevice_t:
    """A handle of one GPU."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu


class c_nvmlMemory_t:
    """The old memory struct: `used` contains what the driver reserves."""

    def __init__(self, total: int, used: int, free: int) -> None:
        self.total, self.used, self.free = total, used, free


class c_nvmlMemory_v2_t(c_nvmlMemory_t):
    """The second memory struct: `reserved` stands apart from `used`."""

    def __init__(self, total: int, reserved: int, used: int, free: int) -> None:
        super().__init__(total, used, free)
        self.version, self.reserved = nvmlMemory_v2, reserved


class c_nvmlProcessInfo_t:
    """One process on a GPU."""

    def __init__(self, pid: int, used: int) -> None:
        self.pid, self.usedGpuMemory = pid, used
        self.gpuInstanceId = self.computeInstanceId = 0xFFFFFFFF


class _State:
    inits = 0


def nvmlInit() -> None:
    """Start NVML; it counts, so every init wants its shutdown."""
    try:
        cuda().note("pynvml.nvmlInit")
    except NoDriver:
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND) from None
    _State.inits += 1


def nvmlShutdown() -> None:
    _started("nvmlShutdown")
    _State.inits -= 1


def _started(name: str, *arguments: object) -> None:
    if not _State.inits:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    cuda().note(f"pynvml.{name}", *arguments, depth=4)


def nvmlSystemGetDriverVersion() -> str:
    _started("nvmlSystemGetDriverVersion")
    return cuda().ledger.scenario.driver_version


def nvmlDeviceGetCount() -> int:
    _started("nvmlDeviceGetCount")
    return cuda().ledger.scenario.gpus


def nvmlDeviceGetHandleByIndex(index: int) -> c_nvmlDevice_t:
    _started("nvmlDeviceGetHandleByIndex", index)
    if not 0 <= index < cuda().ledger.scenario.gpus:
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    return c_nvmlDevice_t(index)


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> c_nvmlDevice_t:
    """Return the handle of the GPU with `uuid`, spelled `GPU-...`. Raises NVMLError where there is none."""
    text = uuid.decode() if isinstance(uuid, bytes) else uuid
    _started("nvmlDeviceGetHandleByUUID", text)
    for gpu in range(cuda().ledger.scenario.gpus):
        if text == f"GPU-{uuid_of(gpu)}":
            return c_nvmlDevice_t(gpu)
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetUUID(handle: c_nvmlDevice_t) -> str:
    _started("nvmlDeviceGetUUID", handle.gpu)
    return f"GPU-{uuid_of(handle.gpu)}"


def nvmlDeviceGetName(handle: c_nvmlDevice_t) -> str:
    _started("nvmlDeviceGetName", handle.gpu)
    return cuda().card.name


def nvmlDeviceGetMemoryInfo(handle: c_nvmlDevice_t, version: int | None = None) -> c_nvmlMemory_t:
    """Return total, used and free bytes; with `nvmlMemory_v2` also what the driver reserves."""
    _started("nvmlDeviceGetMemoryInfo", handle.gpu, version)
    card, used = cuda().card, cuda().ledger.used(handle.gpu)
    free = card.nvml_total_bytes - card.nvml_reserved_bytes - used
    if version == nvmlMemory_v2:
        return c_nvmlMemory_v2_t(card.nvml_total_bytes, card.nvml_reserved_bytes, used, free)
    return c_nvmlMemory_t(card.nvml_total_bytes, used + card.nvml_reserved_bytes, free)


def nvmlDeviceGetComputeRunningProcesses(handle: c_nvmlDevice_t) -> list[c_nvmlProcessInfo_t]:
    """Return every process that holds memory of the GPU, with its bytes."""
    _started("nvmlDeviceGetComputeRunningProcesses", handle.gpu)
    return [c_nvmlProcessInfo_t(pid, size) for pid, size in cuda().ledger.held(handle.gpu).items()]
