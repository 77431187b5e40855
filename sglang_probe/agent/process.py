"""Which process this is, in a way that outlives the reuse of pids: (boot, pid, start time)."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sglang_probe.events.redact import redact_text

MAX_PROCESSES = 64
"""Processes described in one event: with names of full length they take half a line."""
MAX_NAME = 64


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


def holders(held: Iterable[tuple[int, int | None]]) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
    """Describe the processes that hold so many bytes each; of very many the largest, with what the rest comes to.

    Nothing is judged here: names, owners and parents are as /proc has them, None where it hides the process.
    """
    listed = list(held)
    if len(listed) <= MAX_PROCESSES:
        kept, rest = listed, []
    else:
        me = os.getpid()
        by_size = sorted(listed, key=lambda one: (one[0] != me, -(one[1] or 0)))
        kept, rest = by_size[:MAX_PROCESSES], by_size[MAX_PROCESSES:]
    left_out = {"count": len(rest), "bytes": sum(size or 0 for _, size in rest)} if rest else None
    return [{"pid": pid, "bytes": size, **describe(pid)} for pid, size in kept], left_out


def describe(pid: int) -> dict[str, Any]:
    """Return start time, name, owner and parent of `pid`, each None where /proc does not show it."""
    stat = _read(f"/proc/{pid}/stat") or ""
    fields = stat.rpartition(")")[2].split()
    known = len(fields) > 19
    return {
        "start_ticks": int(fields[19]) if known else None,
        "name": _title(pid) or _short(stat.partition("(")[2].rpartition(")")[0]) if known else None,
        "user": _owner(pid) if known else None,
        "parent": int(fields[1]) if known else None,
    }


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


def _title(pid: int) -> str | None:
    """Return the title that a process gave itself, as `sglang::scheduler_TP0`: one argument, which is no path."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            first, _, rest = file.read(4 * MAX_NAME).partition(b"\0")
    except OSError:
        return None
    if rest.strip(b"\0 ") or first.startswith((b"/", b".")):
        return None
    return _short(redact_text(first.decode("utf-8", "replace").strip())) or None


def _short(name: str) -> str:
    """Return a name that takes little of a line: what is no ASCII may take twelve bytes a character."""
    return name[:MAX_NAME] if name.isascii() and name.isprintable() else name[: MAX_NAME // 6]


def _owner(pid: int) -> str | None:
    try:
        return _user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return None


@functools.lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    """Return the name that /etc/passwd has for `uid`, else the number: a directory service could keep us waiting."""
    try:
        with open("/etc/passwd", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split(":")
                if len(fields) > 2 and fields[2] == str(uid):
                    return _short(fields[0])
    except OSError:
        pass
    return str(uid)
