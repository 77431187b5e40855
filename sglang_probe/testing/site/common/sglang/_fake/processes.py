"""Process trees by way of /proc, in place of psutil."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the living children of `pid`, their children, and so on."""
    by_parent: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        by_parent.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        children = by_parent.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def kill_descendants(pid: int, skip_pid: int | None) -> list[int]:
    """SIGKILL every descendant of `pid` but `skip_pid`; return those that were there."""
    return [child for child in descendants(pid) if child != skip_pid and kill(child, signal.SIGKILL)]


def kill(pid: int, number: int) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
