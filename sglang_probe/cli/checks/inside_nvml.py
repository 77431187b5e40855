"""What NVML says inside that Python: through `pynvml` where it is there, else through the driver's library itself.

Follows `inside_python.py` in the same process, so it too is written for old Pythons. NVML needs no CUDA context and
makes none; a GPU is known by its UUID, since CUDA counts GPUs in another order.
"""
# ruff: noqa: BLE001, F821, RUF005, RUF012, UP004, UP031
# mypy: ignore-errors

NO_VALUE = 0xFFFFFFFFFFFFFFFF
"""NVML's "not available" of a process's memory."""


def text(value):
    """Return NVML's text: old bindings hand out bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def asked(question, *arguments):
    """Return an answer, or None where NVML refuses it."""
    try:
        return question(*arguments)
    except Exception:  # not supported, no permission, a GPU that is lost
        return None


class Bindings(object):
    """NVML through the module pynvml."""

    source = "pynvml"

    def __init__(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pynvml
        pynvml.nvmlInit()
        self.nvml = pynvml

    def driver(self):
        return text(self.nvml.nvmlSystemGetDriverVersion())

    def handles(self):
        return [asked(self.nvml.nvmlDeviceGetHandleByIndex, index) for index in range(self.nvml.nvmlDeviceGetCount())]

    def uuid(self, handle):
        return text(self.nvml.nvmlDeviceGetUUID(handle))

    def name(self, handle):
        return text(self.nvml.nvmlDeviceGetName(handle))

    def memory(self, handle):
        """Return bytes in total, used and free, and whether what the driver keeps for itself stands apart from used."""
        version = getattr(self.nvml, "nvmlMemory_v2", None)
        info = asked(lambda: self.nvml.nvmlDeviceGetMemoryInfo(handle, version=version)) if version else None
        apart = info is not None
        info = info if apart else self.nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.total), int(info.used), int(info.free), apart

    def processes(self, handle):
        listed = self.nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return [(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in listed]

    def slices(self, handle):
        """Return the handles of the MIG devices of a GPU, or None where MIG is off."""
        if not self.nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
        most = self.nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        found = [asked(self.nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index) for index in range(most)]
        return [one for one in found if one is not None]


class Library(object):
    """NVML through libnvidia-ml itself, for a Python without the bindings."""

    source = "libnvidia-ml.so.1"

    def __init__(self):
        class Memory(ctypes.Structure):
            _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

        class Process(ctypes.Structure):
            _fields_ = [
                ("pid", ctypes.c_uint),
                ("used", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint),
            ]

        self.c, self.Memory, self.Process = ctypes, Memory, Process
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        code = getattr(self.nvml, name)(*arguments)
        if code != 0:
            raise RuntimeError("%s: NVML error %d" % (name, code))

    def string(self, name, *arguments):
        room = self.c.create_string_buffer(96)
        self.call(name, *(arguments + (room, self.c.c_uint(96))))
        return text(room.value)

    def number(self, name, *arguments):
        value = self.c.c_uint()
        self.call(name, *(arguments + (self.c.byref(value),)))
        return value.value

    def driver(self):
        return self.string("nvmlSystemGetDriverVersion")

    def handle(self, name, *arguments):
        handle = self.c.c_void_p()
        self.call(name, *(arguments + (self.c.byref(handle),)))
        return handle

    def handles(self):
        count = self.number("nvmlDeviceGetCount_v2")
        return [asked(self.handle, "nvmlDeviceGetHandleByIndex_v2", self.c.c_uint(index)) for index in range(count)]

    def uuid(self, handle):
        return self.string("nvmlDeviceGetUUID", handle)

    def name(self, handle):
        return self.string("nvmlDeviceGetName", handle)

    def memory(self, handle):
        info = self.Memory()
        self.call("nvmlDeviceGetMemoryInfo", handle, self.c.byref(info))
        return info.total, info.used, info.free, False

    def processes(self, handle):
        count = self.c.c_uint(1024)
        room = (self.Process * 1024)()
        self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, self.c.byref(count), room)
        return [(one.pid, None if one.used == NO_VALUE else one.used) for one in room[: count.value]]

    def slices(self, handle):
        current, pending = self.c.c_uint(), self.c.c_uint()
        self.call("nvmlDeviceGetMigMode", handle, self.c.byref(current), self.c.byref(pending))
        if not current.value:
            return None
        most = self.number("nvmlDeviceGetMaxMigDeviceCount", handle)
        numbers = [self.c.c_uint(index) for index in range(most)]
        found = [asked(self.handle, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number) for number in numbers]
        return [one for one in found if one is not None]


def opened():
    """Return NVML by the first way that works, and why each other does not."""
    why = []
    for way in (Bindings, Library):
        try:
            return way(), why
        except Exception as error:  # no package, no library, no driver, no permission
            why.append("%s: %s: %s" % (way.source, type(error).__name__, error))
    return None, why


def device(nvml, handle, index):
    """Return one GPU or MIG device; what NVML does not tell is null."""
    total, used, free, apart = asked(nvml.memory, handle) or (None, None, None, None)
    processes = asked(nvml.processes, handle)
    return {
        "index": index,
        "uuid": asked(nvml.uuid, handle),
        "name": asked(nvml.name, handle),
        "total_bytes": total,
        "used_bytes": used,
        "free_bytes": free,
        "reserved_apart": apart,
        "processes": None if processes is None else [{"pid": pid, "bytes": size} for pid, size in processes],
    }


def gpu(nvml, handle, index):
    """Return a GPU with its MIG devices."""
    if handle is None:
        return {"index": index, "lost": True}
    slices = asked(nvml.slices, handle)
    facts = device(nvml, handle, index)
    facts["mig"] = None if slices is None else [device(nvml, one, at) for at, one in enumerate(slices)]
    return facts


def nvml_facts():
    """Return the driver and its GPUs."""
    nvml, why = opened()
    facts = {"source": None, "why_not": why, "driver": None, "gpus": []}
    if nvml is not None:
        facts["source"], facts["driver"] = nvml.source, asked(nvml.driver)
        try:
            facts["gpus"] = [gpu(nvml, handle, index) for index, handle in enumerate(nvml.handles())]
        except Exception as error:  # the count itself is refused
            facts["why_not"] = why + ["%s: %s: %s" % (nvml.source, type(error).__name__, error)]
    return facts


if __name__ == "__main__":
    say("nvml", nvml_facts())
