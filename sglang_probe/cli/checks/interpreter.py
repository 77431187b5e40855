"""Judges of the interpreter: its version, its flags, and whether the doorbell rings in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sglang_probe.cli.checks.command import Asked
from sglang_probe.cli.checks.model import Check, Facts
from sglang_probe.events.variables import REFERENCE
from sglang_probe.report.plain import printable

OLDEST = (3, 10)
NEWEST = (3, 14)
"""The oldest Python the probe arms in, and the newest it is tested with."""


def judge_python(facts: Facts, asked: Asked) -> Check:
    """Old Pythons are left alone by the doorbell."""
    me = facts["interpreter"]
    version = ".".join(map(str, me["version"]))
    name = "CPython" if me["implementation"] == "cpython" else me["implementation"]
    says = f"{name} {version}, {asked.python} ({asked.how})"
    short = tuple(me["version"][:2])
    if short < OLDEST:
        return Check(
            "python",
            "error",
            f"{says}: the probe leaves Pythons before {_dotted(OLDEST)} alone",
            f"run SGLang with Python {_dotted(OLDEST)} or newer",
        )
    if me["implementation"] != "cpython":
        return Check("python", "warning", f"{says}: only CPython is tested")
    if short > NEWEST:
        return Check(
            "python", "warning", f"{says}: newer than the Pythons tested, {_dotted(OLDEST)} to {_dotted(NEWEST)}"
        )
    return Check("python", "ok", says)


def judge_flags(facts: Facts, asked: Asked) -> Check:
    """-I and -E hide PYTHONPATH, -S skips sitecustomize; the others leave the probe be."""
    flags = facts["interpreter"]["flags"]
    given = " ".join(asked.flags)
    out = "start SGLang without it" + (f" (it stands in the {asked.how})" if asked.how.startswith("first line") else "")
    if flags["ignore_environment"]:
        which = "-I" if flags["isolated"] else "-E"
        return Check("flags", "error", f"{which}: that Python ignores PYTHONPATH, so the probe is never seen", out)
    if flags["no_site"]:
        return Check("flags", "error", "-S: that Python imports no sitecustomize, so the probe is never started", out)
    notes = []
    if flags["safe_path"]:
        notes.append("-P or PYTHONSAFEPATH keeps the first directory off sys.path, not PYTHONPATH")
    if flags["no_user_site"]:
        notes.append("-s or PYTHONNOUSERSITE hides packages installed with --user")
    if notes:
        return Check("flags", "ok", f"harmless: {'; '.join(notes)}")
    return Check("flags", "ok", f"harmless: {given}" if given else "none")


def judge_doorbell(facts: Facts, doorbell: str, stderr: str) -> Check:
    """The strongest check: did it ring in that very Python?"""
    bell = facts["doorbell"]
    ours = _file_in(doorbell)
    details = {"armed": bell["armed"], "loaded": bell["loaded"]}
    if bell["armed"]:
        return Check("doorbell", "ok", "rings: the probe watches for SGLang in that Python", None, details)
    return Check("doorbell", "error", *_why_silent(facts, doorbell, ours, stderr), details)


def _why_silent(facts: Facts, doorbell: str, ours: str, stderr: str) -> tuple[str, str]:
    me, bell = facts["interpreter"], facts["doorbell"]
    if me["flags"]["ignore_environment"] or me["flags"]["no_site"]:
        return "silent, because of that flag", "start SGLang without it"
    if tuple(me["version"][:2]) < OLDEST:
        return "silent: it leaves this Python alone", f"run SGLang with Python {_dotted(OLDEST)} or newer"
    said = next(
        (line for line in stderr.splitlines() if line.startswith("sglang-probe:") or "sglang-probe;" in line), ""
    )
    if said:
        reason = stderr.partition(said)[2].strip().partition("\n")[0]
        return f"silent: it failed there ({printable(reason or said)})", "reinstall sglang-probe"
    entries = (me["pythonpath"] or "").split(os.pathsep)
    if doorbell not in entries:
        return (
            f"silent: PYTHONPATH did not arrive; that Python has {printable(me['pythonpath'] or 'none')}",
            f"{me['executable'] or 'the command'} is behind a wrapper that sets it: add {doorbell} there",
        )
    if bell["loaded"] is not None and bell["loaded"] != ours:
        return (
            f"silent: another sitecustomize came first, {bell['loaded']}",
            "take that directory off the front of sys.path (a .pth file put it there), or let that file import ours",
        )
    return (
        "silent, and no reason was found",
        "try: " + f"PYTHONPATH={doorbell} PYTHONVERBOSE=1 {me['executable']} -c ''",
    )


def judge_sitecustomize(facts: Facts, doorbell: str) -> Check:
    """Another sitecustomize is run after ours: one a process, the first on sys.path, as without the probe."""
    bell = facts["doorbell"]
    ours = _file_in(doorbell)
    others = [path for path in bell["sitecustomizes"] if path != ours]
    details = {"others": others, "chained": [path for path in bell["chained"] if path != ours]}
    user = f"; usercustomize {bell['usercustomize']} runs as ever" if bell["usercustomize"] else ""
    if not others:
        return Check("sitecustomize", "ok", f"no other one{user}", None, details)
    if not bell["armed"]:
        return Check("sitecustomize", "ok", f"also {', '.join(others)}{user}", None, details)
    hidden = [path for path in others if path not in bell["chained"]]
    says = f"{', '.join(p for p in others if p not in hidden) or 'none'}: the probe's own runs it after itself"
    if hidden:
        says = f"{says}; {', '.join(hidden)}: further back, not run, as without the probe"
    return Check("sitecustomize", "ok", says + user, None, details)


def judge_pythonpath(environment: Mapping[str, str], doorbell: str) -> Check:
    """Whether the probe is on PYTHONPATH already, and what stands in front of it there."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    at = next((i for i, entry in enumerate(entries) if _same(entry, doorbell)), None)
    others = {entry: kind for entry in entries if not _same(entry, doorbell) and (kind := _start_up_module(entry))}
    details = {"entries": entries, "position": at}
    inject = f"start with: sglang-probe run -- ..., or put {doorbell} first on PYTHONPATH"
    copies = [entry for entry, kind in others.items() if kind == "probe"]
    if copies:
        says = f"another copy of the probe is on it, {', '.join(copies)}; this one is {doorbell}"
        return Check("pythonpath", "warning", says, f"take it off, or {inject}", details)
    if at is None:
        return Check("pythonpath", "ok", "the probe is not on it now, and need not be", inject, details)
    front = [entry for entry in entries[:at] if entry in others]
    if front:
        says = f"{front[0]} stands in front of the probe on it and has a sitecustomize too, which hides the probe's"
        return Check("pythonpath", "warning", says, inject, details)
    return Check("pythonpath", "ok", "the probe is on it now: a server started here has it", None, details)


def judge_reference(facts: Facts, environment: Mapping[str, str], doorbell: str) -> Check | None:
    """Descendants of the first armed process are left alone where they are another Python."""
    inherited = environment.get(REFERENCE)
    if inherited is None:
        return None
    me = facts["interpreter"]
    mine = os.pathsep.join([me["prefix"], str(me["cache_tag"])])
    details = {"inherited": inherited, "this": mine}
    if inherited == mine:
        return Check("reference", "ok", f"{REFERENCE} is set, and names this Python", None, details)
    by_path = any(_same(entry, doorbell) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry)
    return Check(
        "reference",
        "error" if by_path else "warning",
        f"{REFERENCE} names {printable(inherited)}, the first Python that was armed; this one, {mine}, is left alone",
        f"unset {REFERENCE}, or start with sglang-probe run, which does",
        details,
    )


def _file_in(doorbell: str) -> str:
    return str(Path(doorbell, "sitecustomize", "__init__.py").resolve())


def _start_up_module(entry: str) -> str | None:
    """Tell what a sitecustomize in a directory is: the probe's doorbell, another, or none."""
    for name in ("sitecustomize/__init__.py", "sitecustomize.py"):
        try:
            content = Path(entry, name).read_bytes()
        except (OSError, ValueError):
            continue
        return "probe" if b"sglang_probe" in content else "other"
    return None


def _same(entry: str, directory: str) -> bool:
    return os.path.realpath(entry) == os.path.realpath(directory)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
