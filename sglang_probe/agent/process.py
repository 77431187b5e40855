"""Which process this is, in a way that outlives the reuse of pids: (boot, pid, start time)."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """Names a process of this host for ever. `start_ticks` is field 22 of /proc/PID/stat, in clock ticks since boot."""

    boot_id: str | None
    pid: int
    start_ticks: int | None


def this_process() -> ProcessKey:
    """Return the key of the running process; parts are None where there is no /proc."""
    pid = os.getpid()
    return ProcessKey(boot_id(), pid, start_ticks(pid))


def boot_id() -> str | None:
    """Return the id of this boot of the kernel."""
    return _read("/proc/sys/kernel/random/boot_id")


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started, or None where it is gone or not visible here."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def command_name(pid: int) -> str | None:
    """Return the command name of `pid`, or None where it is gone or not visible here."""
    return _read(f"/proc/{pid}/comm")


def is_alive(key: ProcessKey) -> bool:
    """Tell whether that very process runs on this host now. A process without a start time counts by its pid alone."""
    if key.boot_id != boot_id():
        return False
    if key.start_ticks is not None:
        return start_ticks(key.pid) == key.start_ticks and _stat(key.pid)[:1] != ["Z"]  # a zombie runs nothing
    try:
        os.kill(key.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat(pid: int) -> list[str]:
    # Fields of /proc/PID/stat from the state on: the command name before it may itself hold spaces and parentheses.
    return (_read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
