"""The record of calls: what each process asked of torch.cuda and NVML, so that a test can assert what was not asked.

One file per process, one line per call, written at once: a process that is killed loses none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One call. `caller` is the module that made it; `made_context` says that the call created a CUDA context."""

    mono_ns: int
    pid: int
    name: str
    arguments: tuple[Any, ...]
    caller: str
    made_context: bool
    capturing: bool


class CallLog:
    """This process's file of calls."""

    def __init__(self, directory: Path) -> None:
        self._pid = os.getpid()
        path = directory / f"calls.{self._pid}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, name: str, arguments: tuple[Any, ...], depth: int, made_context: bool, capturing: bool) -> None:
        """Write one call; `depth` is how many frames up the caller is."""
        caller = sys._getframe(depth).f_globals.get("__name__", "?")
        call = Call(time.monotonic_ns(), self._pid, name, arguments, caller, made_context, capturing)
        os.write(self._file, json.dumps(call, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_calls(directory: Path) -> list[Call]:
    """Return the calls of every process of `directory`, oldest first."""
    calls = []
    for path in directory.glob("calls.*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            raw = json.loads(line)
            calls.append(Call(raw[0], raw[1], raw[2], tuple(raw[3]), *raw[4:]))
    return sorted(calls)
