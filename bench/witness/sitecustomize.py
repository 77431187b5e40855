"""Lets a process say, when asked by SIGUSR2, what torch's allocator holds and when CUDA graphs were captured.

The same in both halves of observer.py: behind the probe's doorbell, or alone where there is no probe. It reads nothing
of the device before it is asked.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

KEYS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.current",
    "allocation.all.allocated",
)
captures: list[list[int]] = []
"""[begin, end] of every captured graph, in ns of the monotonic clock."""


def note_captures(graphs: ModuleType) -> None:
    """Note when each capture of torch.cuda.graphs begins and ends."""
    begin, end = graphs.CUDAGraph.capture_begin, graphs.CUDAGraph.capture_end

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(self, *args, **kwargs)
        captures.append([time.monotonic_ns()])
        return result

    def capture_end(self: Any) -> Any:
        captures[-1].append(time.monotonic_ns())
        return end(self)

    graphs.CUDAGraph.capture_begin, graphs.CUDAGraph.capture_end = capture_begin, capture_end


def _tell(*_: Any) -> None:
    held: dict[str, Any] = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            if torch._C._cuda_hasPrimaryContext(index):  # noqa: SLF001  # asking without one would make it
                stats = torch.cuda.memory_stats(index)
                held[str(index)] = {key: stats.get(key) for key in KEYS}
    file = Path(os.environ["SGLANG_WITNESS_DIR"], f"{os.getpid()}.json")
    part = file.with_suffix(".part")
    whole = [one for one in captures if len(one) == 2]
    part.write_text(json.dumps({"torch": held, "captures": whole}), encoding="utf-8")
    part.replace(file)


if "SGLANG_WITNESS_DIR" in os.environ:
    signal.signal(signal.SIGUSR2, _tell)
    after_import = runpy.run_path(str(Path(__file__).parents[1] / "after_import.py"))["after_import"]
    after_import("torch.cuda.graphs", note_captures)
