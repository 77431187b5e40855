"""The host's memory, and what kind of host it is: read from /proc, which needs no library."""

from __future__ import annotations

import os


def memory() -> dict[str, int | None]:
    """Return this process's resident bytes, the host's available bytes and what /dev/shm holds."""
    return {
        "host_rss_bytes": _resident(),
        "host_available_bytes": meminfo("MemAvailable"),
        "host_shm_used_bytes": _shm_used(),
    }


def meminfo(field: str) -> int | None:
    """Return a field of /proc/meminfo in bytes, or None where there is none."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def is_wsl() -> bool:
    """Tell whether this is Linux inside Windows, whose driver hides other processes."""
    return "microsoft" in os.uname().release.lower()


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _shm_used() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return (found.f_blocks - found.f_bfree) * found.f_frsize
