"""The processes of this machine that matter to the doctor: SGLang's, and those that hold GPUs. Only looked at."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from sglang_probe.events.names import LAUNCHERS
from sglang_probe.events.variables import SWITCH

TITLE: Final = "sglang::"
"""How the processes that a launcher starts call themselves."""
LAUNCHER_TITLE: Final = "sglang::http_server"
"""How a launcher calls itself, in 0.5.2."""
PROC: Final = Path("/proc")
_EVENTS: Final = re.compile(r"\.(\d+)\.(?:\d+|x)\.jsonl(?: \(deleted\))?$")
_PYTHON: Final = re.compile(r"python|pypy|sglang$")
_REAPERS: Final = frozenset({"init", "systemd"})
"""Who takes in the children of a process that ended, besides process 1."""


def process_facts(pids: Iterable[int], proc: Path = PROC, me: int | None = None) -> list[dict[str, Any]]:
    """Return what can be seen of `pids` (those on GPUs), of SGLang's processes, and of whoever started those.

    This process (`me`), those above it and those below hold a server's words when they ask about one, and are none.
    """
    everyone = [int(one.name) for one in proc.iterdir() if one.name.isdigit()] if proc.is_dir() else []
    parents = {pid: _parent(proc, pid) for pid in everyone}
    mine = _family(os.getpid() if me is None else me, parents)
    parts = {pid: part for pid in everyone if (part := sglang_part(_words(proc, pid, "cmdline")))}
    parts = {pid: part for pid, part in parts.items() if part != "launcher" or pid not in mine}
    tops = {pid: _top(proc, pid, parts) for pid, part in parts.items() if part != "launcher"}
    orphans = {pid for pid, top in tops.items() if _is_left_alone(proc, _parent(proc, top))}
    starters = {_parent(proc, top) for pid, top in tops.items() if pid not in orphans}
    wanted = {*pids, *parts, *(pid for pid in starters if pid)}
    found = [_describe(proc, pid, parts.get(pid), pid in starters) for pid in sorted(wanted)]
    for one in found:
        one["orphaned"] = one["pid"] in orphans if one["pid"] in tops else None
        one["server"] = _parent(proc, tops[one["pid"]]) if one["pid"] in tops and not one["orphaned"] else None
    return found


def _family(me: int, parents: dict[int, int | None]) -> set[int]:
    """Return a process with those that it descends from, and those that descend from it."""
    family = {me}
    above = parents.get(me)
    while above and above not in family:
        family.add(above)
        above = parents.get(above)
    below = {me}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below} - family
        family |= below
    return family


def sglang_part(argv: list[str]) -> str | None:
    """Return what a process is to SGLang: `launcher`, its own title such as `sglang::scheduler_TP0`, or None."""
    if not argv:
        return None
    if argv[0].startswith(LAUNCHER_TITLE):
        return "launcher"
    if argv[0].startswith(TITLE):
        return argv[0].split()[0]
    if not _PYTHON.match(Path(argv[0]).name):
        return None
    for before, word in pairwise(argv[:8]):
        if before.startswith("-") and before.endswith("m") and word in LAUNCHERS:
            return "launcher"
        if not before.startswith("-") and _is_program(word):
            return "launcher"
    return None


def _is_program(word: str) -> bool:
    """Tell whether a word is one of SGLang's programs as a file: its command, or a launcher's source."""
    as_module = word.removesuffix(".py").replace(os.sep, ".")
    return Path(word).name == "sglang" if os.sep in word and not word.endswith(".py") else as_module.endswith(LAUNCHERS)


def _top(proc: Path, pid: int, parts: dict[int, str]) -> int:
    """Return the outermost of SGLang's own children that a process belongs to: its data-parallel controller, or it."""
    for _ in range(8):
        parent = _parent(proc, pid)
        if parent is None or parts.get(parent, "launcher") == "launcher":
            break
        pid = parent
    return pid


def _is_left_alone(proc: Path, parent: int | None) -> bool:
    """Tell a launcher that is gone by who took its children in: process 1 does, unless it is the launcher itself."""
    if parent is None or parent == 0:
        return False
    argv = _words(proc, parent, "cmdline")
    if parent == 1:
        return not any("sglang" in word or _PYTHON.match(Path(word).name) for word in argv)
    return not _stat(proc, parent) or Path(argv[0] if argv else "").name in _REAPERS


def _describe(proc: Path, pid: int, part: str | None, starter: bool) -> dict[str, Any]:
    fields = _stat(proc, pid)
    files = _open_files(proc, pid)
    probe, run = _probe(proc, pid, files) if part or starter else (None, None)
    return {
        "pid": pid,
        "visible": bool(fields),
        "name": part if part and part != "launcher" else _name(proc, pid),
        "sglang": part or ("launcher" if starter else None),
        "user": _user(proc, pid),
        "age_s": _age(fields),
        "parent": _parent(proc, pid),
        "holds_device": None if files is None else any(file.startswith("/dev/nvidia") for file in files),
        "probe": probe,
        "run": run,
    }


def _probe(proc: Path, pid: int, files: list[str] | None) -> tuple[bool | None, str | None]:
    """Tell whether the probe is in a process: by its open file of events, else by the environment it began with."""
    for file in files or []:
        events = _EVENTS.search(file)
        if events and events[1] == str(pid):
            return True, str(Path(file).parent)
    variables = dict(word.partition("=")[::2] for word in _words(proc, pid, "environ") if "=" in word)
    if not variables.keys() & {"PATH", "PYTHONPATH", "HOME"}:
        return None, None  # another user's, or overwritten by the title that the process gave itself
    rings = any(_is_doorbell(entry) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry)
    return (None if rings and variables.get(SWITCH) != "0" else False), None


def _is_doorbell(entry: str) -> bool:
    try:
        return b"sglang_probe" in Path(entry, "sitecustomize", "__init__.py").read_bytes()
    except (OSError, ValueError):
        return False


def _open_files(proc: Path, pid: int) -> list[str] | None:
    """Return the files that a process has open, or None where this user may not know."""
    files = []
    try:
        for link in (proc / str(pid) / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                files.append(str(link.readlink()))
    except OSError:
        return None
    return files


def _name(proc: Path, pid: int) -> str | None:
    with suppress(OSError):
        return (proc / str(pid) / "comm").read_text("utf-8", "replace").strip()
    return None


def _user(proc: Path, pid: int) -> str | None:
    try:
        uid = (proc / str(pid)).stat().st_uid
        return pwd.getpwuid(uid).pw_name
    except OSError:
        return None
    except KeyError:
        return str(uid)


def _age(fields: list[str]) -> float | None:
    """Return seconds since a process began."""
    if len(fields) < 20:
        return None
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(round(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 1), 0.0)


def _parent(proc: Path, pid: int | None) -> int | None:
    fields = [] if pid is None else _stat(proc, pid)
    return int(fields[1]) if len(fields) > 1 else None


def _stat(proc: Path, pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, or none: a zombie counts as gone."""
    try:
        fields = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
    return fields if fields[:1] != ["Z"] else []


def _words(proc: Path, pid: int, name: str) -> list[str]:
    try:
        content = (proc / str(pid) / name).read_bytes()
    except OSError:
        return []
    return [word for word in content.decode("utf-8", "replace").split("\0") if word]
