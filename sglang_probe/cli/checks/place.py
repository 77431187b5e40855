"""Judges of where the events would go, and of the probe's own variables."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sglang_probe.cli.checks.model import Check, Facts
from sglang_probe.events.variables import (
    DEFAULT_DIRECTORY,
    DIRECTORY,
    REFERENCE,
    RUN_ID,
    RUN_MAKER,
    SWITCH,
    run_directory,
)
from sglang_probe.report.plain import printable

OWN: Final = (SWITCH, DIRECTORY, RUN_ID, RUN_MAKER, REFERENCE)
"""The variables that the probe reads."""
OF_TESTS: Final = frozenset({"SGLANG_PROBE_FAKE_GPUS", "SGLANG_PROBE_LANES", "SGLANG_PROBE_WHEELS"})
_A_RUN_ID: Final = "20261129T184500Z-3fa9c1"
"""As long as the ids that the agent makes."""
_LONGEST_FILE_NAME: Final = 128
"""Host name, process and start time: a path has a longest length, too."""
_OF_THE_KERNEL: Final = (("proc",), ("sys",))
"""Where root seems to have the right to write, and nobody can make a file. Other file systems without a size can be
written: some in user space, and a tmpfs without a limit."""
LITTLE_BYTES: Final = 64 << 20
"""A start of eight ranks writes under 5 MB, and a disk is rarely the probe's alone."""


def place_facts(environment: Mapping[str, str]) -> dict[str, Any]:
    """Look at where a server started here would write: the directory of runs, and its own in it. Nothing is made."""
    given, run_id = environment.get(DIRECTORY) or None, environment.get(RUN_ID) or None
    facts: dict[str, Any] = {"given": given, "path": None, "run_id": run_id, "run": None}
    facts |= dict.fromkeys(("exists", "nearest", "why", "is_directory", "writable", "read_only", "takes_files"))
    facts |= {"free_bytes": None, "free_inodes": None}
    try:
        facts["path"] = os.path.abspath(given or DEFAULT_DIRECTORY)  # noqa: PTH100 - `link/..` as the agent reads it
        facts |= _nearest(Path(facts["path"]))
        facts["run"] = run_directory(facts["path"], run_id or _A_RUN_ID)
        own = _nearest(Path(facts["run"]))
        facts |= own if own["exists"] and run_id else {}
        with suppress(FileNotFoundError, NotADirectoryError):
            Path(facts["run"], "-" * _LONGEST_FILE_NAME).stat()
        facts["run"] = facts["run"] if run_id else None  # that was an id for length alone
    except (OSError, ValueError) as error:
        facts["why"] = getattr(error, "strerror", None) or str(error)
    return facts


def _nearest(path: Path) -> dict[str, Any]:
    """A directory of runs that is there is written in; one that is not is made in the nearest directory that is.

    Raises OSError in the system's words where a name cannot be looked at: too long, or behind a closed directory.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        path.stat()
    nearest = next(one for one in (path, *path.parents) if os.path.lexists(one))
    longest = os.pathconf(nearest, "PC_NAME_MAX") if nearest.is_dir() else None
    if longest and any(len(os.fsencode(name)) > longest for name in path.relative_to(nearest).parts):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))  # the system says so once its parent is made
    found = {"exists": nearest == path, "nearest": str(nearest), "is_directory": nearest.is_dir()}
    if not found["is_directory"]:
        return found
    room = os.statvfs(nearest)
    has_room = room.f_blocks > 0
    return {
        **found,
        "writable": os.access(nearest, os.W_OK | os.X_OK),
        "read_only": bool(room.f_flag & os.ST_RDONLY),
        "takes_files": has_room or Path(os.path.realpath(nearest)).parts[1:2] not in _OF_THE_KERNEL,
        "free_bytes": room.f_bavail * room.f_frsize if has_room else None,
        "free_inodes": room.f_favail if room.f_files else None,
    }


def judge_place(facts: Facts) -> Check:
    """Where events cannot be written, nothing is recorded."""
    other = f"set {DIRECTORY} to a directory that can be written"
    path, run, details = facts["path"], facts["run"], dict(facts)
    if run is not None and (facts["why"] is not None or facts["nearest"] == run):
        path = run
        other = f"set {RUN_ID} to another id, or unset it" if facts["run_id"] else other
    if facts["why"] is not None:
        where = printable(path or facts["given"] or DEFAULT_DIRECTORY)
        return Check("run_directory", "error", f"{where}: {facts['why']}", other, details)
    shown = printable(path)
    if not facts["is_directory"]:
        what = "" if facts["exists"] else f"cannot be created: {printable(facts['nearest'])} "
        says = f"{shown} {what}is no directory"
        return Check("run_directory", "error", says, other, details)
    if facts["read_only"]:
        return Check("run_directory", "error", f"{shown} lies on a read-only file system", other, details)
    if not (facts["writable"] and facts["takes_files"]):
        why = "by this user" if facts["takes_files"] else "by anybody: that is the kernel's own file system"
        what = "cannot be written" if facts["exists"] else f"cannot be created in {printable(facts['nearest'])}"
        return Check("run_directory", "error", f"{shown} {what} {why}", other, details)
    known = facts["free_bytes"] is not None
    free = f"{facts['free_bytes'] / (1 << 30):.1f} GiB free" if known else "free space unknown"
    if facts["free_bytes"] == 0 or facts["free_inodes"] == 0:
        return Check("run_directory", "error", f"{shown}: the disk is full", f"free some space, or {other}", details)
    if known and facts["free_bytes"] < LITTLE_BYTES:
        left = f"{facts['free_bytes'] >> 20} MiB free"
        return Check("run_directory", "warning", f"{shown}: only {left}", f"free some space, or {other}", details)
    if facts["given"] and not Path(facts["given"]).is_absolute():
        says = f"{shown}, {free}: {DIRECTORY} is relative, to the directory in which the server starts"
        fixed = f"to have one place for all: {DIRECTORY}={printable(facts['path'])}"
        return Check("run_directory", "warning", says, fixed, details)
    return Check("run_directory", "ok", f"{shown}, {free}", None, details)


def judge_variables(environment: Mapping[str, str]) -> list[Check]:
    """Return the switch, the run id, and names that the probe does not read."""
    return [_switch(environment), *_run_id(environment), *_misspelt(environment)]


def _switch(environment: Mapping[str, str]) -> Check:
    value = environment.get(SWITCH)
    if value == "0":
        return Check("switch", "error", "SGLANG_PROBE=0 turns the probe off", "unset SGLANG_PROBE")
    if value is not None and value.strip().lower() in {"false", "off", "no", "", "0"}:
        says = f"SGLANG_PROBE={value!r} leaves the probe on: only 0 turns it off"
        return Check("switch", "warning", says, "unset it, or say 0")
    return Check("switch", "ok", "on: SGLANG_PROBE is not 0")


def _run_id(environment: Mapping[str, str]) -> list[Check]:
    value = environment.get(RUN_ID)
    if not value:
        return []
    if environment.get(RUN_MAKER):
        says = f"{RUN_ID}={printable(value)} was handed on by a server's process"
        return [Check("run_id", "warning", says, f"unset {RUN_ID} and {RUN_MAKER}, or use a fresh shell")]
    says = f"{RUN_ID}={printable(value)}: every server started with it is written into that one run"
    return [Check("run_id", "ok", says, f"unset {RUN_ID} to have a run per server")]


def _misspelt(environment: Mapping[str, str]) -> list[Check]:
    checks = []
    for name in sorted(environment):
        if name in OWN or name in OF_TESTS or not name.startswith(("SGL", "PROBE_")):
            continue
        close = difflib.get_close_matches(name, OWN, 1, 0.87)
        if not close and not name.startswith("SGLANG_PROBE"):
            continue  # SGLang's own, or somebody else's
        do = f"did you mean {close[0]}?" if close else f"the probe reads {', '.join(OWN[:3])}"
        checks.append(
            Check("variable", "warning", f"{printable(name)} is no variable of the probe", do, {"name": name})
        )
    return checks
