"""What each source of a reading costs on this machine, that asking takes no memory, and what an error leaves readable.

    PYTHONPATH=. python bench/readings.py

It needs no server: torch and nvidia-ml-py where there is a GPU (device 0 is used), nothing but Python where there is
none. The last lines are one reading as written, and one from a process whose CUDA context an error has poisoned.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from sglang_probe.agent import host, torch_memory
from sglang_probe.agent.health import Health
from sglang_probe.agent.identity import Identity
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.process import describe
from sglang_probe.agent.readings import Readings
from sglang_probe.agent.sources import cpu_wait_ns

CALLS = 1000
POISON = "poison"
MIB = 1 << 20


class Bench:
    """The parts of a reading, as the agent of a rank on this machine's first device has them."""

    def __init__(self) -> None:
        self.torch = _torch()
        # A model has hundreds of tensors: torch's figures are counted as they change, its snapshot walks all of them.
        sizes = range(1, 401) if self.torch else ()
        self.tensors = [self.torch.empty(size * MIB // 32, dtype=self.torch.uint8, device="cuda:0") for size in sizes]
        self.health = Health()
        self.nvml = Nvml(self.health)
        self.readings = Readings(self.health, self.nvml)
        self.identity = Identity("bench")
        self.identity.use_device("cuda" if self.torch else "cpu", 0)

    def read(self, *, processes: bool) -> dict[str, Any]:
        """Return one reading."""
        found = self.identity
        return self.readings.read(found.kind, found.index, found.uuid, processes=processes)

    def sources(self) -> dict[str, Callable[[], Any]]:
        """Return each source by its name."""
        found: dict[str, Callable[[], Any]] = {
            "host: RSS, available, /dev/shm": host.memory,
            "host: wait for a CPU": cpu_wait_ns,
            "host: one process of a list": lambda: describe(os.getpid()),
        }
        if self.torch:
            found |= {
                "torch: is a graph being captured": torch_memory.capturing,
                "torch: has this process a context": lambda: torch_memory.has_context(0),
                "torch: device free and total": lambda: torch_memory.device(0),
                "torch: allocator": lambda: torch_memory.allocator(0),
                "torch: pinned": torch_memory.pinned,
                "torch: private pools (graph.capture only)": lambda: torch_memory.private_pools(0),
            }
            uuid = self.identity.uuid
            if self.nvml.usable(uuid) and uuid:
                found |= {
                    "nvml: memory": lambda: self.nvml.memory(uuid),
                    "nvml: processes, described": lambda: self.nvml.processes(uuid),
                }
        return {
            **found,
            "a reading, as at begin": lambda: self.read(processes=False),
            "a reading, as at end": lambda: self.read(processes=True),
        }


def _torch() -> Any:
    """Return torch with a context on device 0, or None where there is no GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.cuda.set_device(0)
    return torch


def timed(question: Callable[[], Any]) -> list[float]:
    """Return the durations of many calls in microseconds, ascending."""
    taken = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        question()
        taken.append((time.perf_counter_ns() - began) / 1000)
    return sorted(taken)


def print_torch(torch: Any) -> None:
    """Print which torch this is and what it tells of the device and of pinned memory."""
    ask = getattr(torch.cuda, "host_memory_stats_as_nested_dict", None)
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, HIP {torch.version.hip}")
    print(f"{torch.cuda.get_device_properties(0)}, PCI address {torch_memory.pci_address(0)}")
    print(f"figures of pinned memory: {sorted(ask()) if ask else None}")


def print_costs(bench: Bench) -> None:
    """Print the cost of each source, the first call apart: it may load a library."""
    print(f"{'source':45} {'first':>9} {'median':>9} {'p99':>9} us")
    for name, question in bench.sources().items():
        began = time.perf_counter_ns()
        question()
        first = (time.perf_counter_ns() - began) / 1000
        taken = timed(question)
        print(f"{name:45} {first:9.1f} {statistics.median(taken):9.1f} {taken[-CALLS // 100]:9.1f}")


def print_taken(bench: Bench, before: dict[str, Any]) -> None:
    """Print what this process and its device hold now beside what they held before all those calls."""
    after = bench.read(processes=True)
    for key in ("device_free_bytes", "torch_allocated_bytes", "torch_reserved_bytes", "nvml_used_bytes"):
        if before[key] is not None:
            print(f"{key} moved by {after[key] - before[key]} bytes over all calls")
    pids = [[one["pid"] for one in reading["nvml_processes"] or []] for reading in (before, after)]
    print(f"processes that NVML lists: {pids[0]} before, {pids[1]} after")


def print_capture(bench: Bench) -> None:
    """Print what a reading inside a graph capture holds: nothing."""
    torch = bench.torch
    tensor = torch.ones(8, device="cuda:0")
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        inside = bench.read(processes=True)
        tensor += 1
    print(f"read while capturing: {[key for key, value in inside.items() if value is not None]}")


def poison() -> None:
    """Break this process's context with a kernel that asserts, and print what can be read then, and how fast."""
    bench = Bench()
    torch = bench.torch
    bench.read(processes=True)
    bench.health.take()
    try:
        torch.zeros(4, device="cuda:0")[torch.tensor([1 << 20], device="cuda:0")]
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"poisoned: {type(error).__name__}: {str(error).splitlines()[0]}")
    taken = timed(lambda: bench.read(processes=True))
    print(f"a reading then takes {statistics.median(taken):.1f} us (p99 {taken[-CALLS // 100]:.1f})")
    bench.health.take()
    print(json.dumps({"reading": bench.read(processes=True), "degraded": bench.health.take()}), flush=True)
    os._exit(0)  # what torch would free on its way out is on a device that answers no more


def main() -> int:
    """Measure and print."""
    if sys.argv[1:] == [POISON]:
        poison()
        return 0
    bench = Bench()
    began = time.perf_counter_ns()
    before = bench.read(processes=True)
    print(f"the first reading of all, which opens NVML: {(time.perf_counter_ns() - began) / 1e6:.1f} ms")
    if bench.torch:
        print_torch(bench.torch)
    print(f"device: {json.dumps(bench.identity.device())}")
    print_costs(bench)
    if bench.torch:
        print_taken(bench, before)
        print_capture(bench)
    bench.health.take()
    print(json.dumps({"reading": bench.read(processes=True), "degraded": bench.health.take()}))
    sys.stdout.flush()
    return subprocess.run([sys.executable, __file__, POISON], check=False).returncode if bench.torch else 0


if __name__ == "__main__":
    raise SystemExit(main())
