"""Is that process still there? A pid alone is reused, so a process is (pid, start time)."""

from __future__ import annotations

from pathlib import Path

GONE = (b"Z", b"X")
"""A zombie counts as gone: the driver gives its memory back when the process exits, not when it is reaped."""


def _fields(stat: Path) -> list[bytes] | None:
    """Return the fields after the name, or None where the process is gone."""
    try:
        fields = stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in GONE else fields


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started, in clock ticks since boot, or None where it is gone."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return None if fields is None else int(fields[19])


def living_groups() -> list[int]:
    """Return the process group of every living process."""
    everyone = (_fields(stat) for stat in Path("/proc").glob("[0-9]*/stat"))
    return [int(fields[2]) for fields in everyone if fields is not None]


def is_alive(pid: int, started: int) -> bool:
    """Return whether the process that started at `started` still runs."""
    return start_ticks(pid) == started
