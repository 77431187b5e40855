"""Is a process still running? Only the machine and the boot that it ran on can tell."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

UNKNOWABLE = "not knowable here: it ran on another host, in another boot, or in another pid namespace"


class ProcessId(msgspec.Struct, frozen=True):
    """What names a process for ever. `start_ticks` is field 22 of /proc/PID/stat."""

    host: str
    boot_id: str | None
    pid: int
    start_ticks: int | None
    pid_namespace: str | None = None
    """/proc/self/ns/pid of that process, where it said so."""


def is_alive(process: ProcessId) -> bool | None:
    """Return whether that very process runs on this machine now; None where this machine cannot tell."""
    if process.boot_id is None or process.boot_id != _boot_id() or process.host != socket.gethostname():
        return None
    if process.pid_namespace is not None and process.pid_namespace != _pid_namespace():
        return None
    return is_running(process.pid, process.start_ticks)


def is_running(pid: int, start_ticks: int | None) -> bool | None:
    """Return whether a process of this machine, boot and pid namespace runs; None where its start is not known."""
    fields = _stat(pid)
    if fields is None:
        return False
    state, start = fields
    if state in "ZX":  # a zombie runs nothing
        return False
    return None if start_ticks is None else start == start_ticks


def _boot_id() -> str | None:
    return _read(Path("/proc/sys/kernel/random/boot_id"))


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _stat(pid: int) -> tuple[str, int] | None:
    """Return state and start time of a process; None where there is none."""
    text = _read(Path(f"/proc/{pid}/stat")) if pid > 0 else None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = (text or "").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
