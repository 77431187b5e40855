"""What NVML says of every card, seen from outside the server: no CUDA context is needed for it, and none is made."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20


@dataclass
class Seen:
    """The process list over a time: each process's title as last read, and the most that it held, in MiB."""

    titles: dict[int, str] = field(default_factory=dict)
    most_mib: dict[int, int | None] = field(default_factory=dict)


class Cards:
    """NVML of this machine; without it every answer is empty and `why_not` says so."""

    def __init__(self) -> None:
        self.why_not: str | None = None
        self._handles: list[Any] = []
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except Exception as error:  # noqa: BLE001  # no package, no driver, no permission: each says so in its own words
            self.why_not = f"{type(error).__name__}: {error}"

    def __len__(self) -> int:
        return len(self._handles)

    def used_mib(self) -> list[int]:
        """Return what is used of each card."""
        return [self._memory(handle).used // MIB for handle in self._handles]

    def free_bytes(self, index: int) -> int:
        """Return what is free of a card, by NVML's index."""
        return int(self._memory(self._handles[index]).free)

    def processes(self) -> list[tuple[int, int, int | None]]:
        """Return (card, pid, MiB) of every compute process, MiB None where the driver does not tell."""
        listed = []
        for index, handle in enumerate(self._handles):
            for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                used = None if one.usedGpuMemory is None else one.usedGpuMemory // MIB
                listed.append((index, int(one.pid), used))
        return listed

    def mib_by_title(self, group: set[int]) -> dict[str, int | None]:
        """Return what each process of a group holds, by its title and card."""
        return {f"{title(pid)} on GPU {card}": used for card, pid, used in self.processes() if pid in group}

    def pids(self) -> set[int]:
        """Return the pids of all compute processes."""
        return {pid for _, pid, _ in self.processes()}

    def wait_only(self, pids: set[int], within_s: float = 20) -> bool:
        """Wait until none but these is listed: the driver takes a moment after a process is gone."""
        deadline = time.monotonic() + within_s
        while self.pids() - pids:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def versions(self) -> dict[str, str]:
        """Return the names of the cards and the driver's version."""
        if not self._handles:
            return {}
        names = [str(self._nvml.nvmlDeviceGetName(handle)) for handle in self._handles]
        return {"cards": f"{len(names)} x {names[0]}", "driver": str(self._nvml.nvmlSystemGetDriverVersion())}

    def _memory(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)


class Watch:
    """`with Watch(cards) as seen:` notes every process that NVML lists meanwhile, five times a second."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._seen = Seen()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Seen:
        self._thread.start()
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _look_on(self) -> None:
        while not self._over.wait(0.2):
            for _, pid, used in self._cards.processes():
                self._seen.most_mib[pid] = max(used or 0, self._seen.most_mib.get(pid) or 0)
                if named := title(pid):
                    self._seen.titles[pid] = named


def title(pid: int) -> str:
    """Return what a process calls itself: SGLang's title, `launcher`, or its program; empty where it is gone."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
        named = next((word for word in words if word.startswith("sglang::")), None)
        if named is not None:
            return named
        if any("launch_server" in word for word in words):
            return "launcher"
        return Path(words[0]).name if words else ""
    return ""
