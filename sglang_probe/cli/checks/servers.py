"""Judges of the servers that run here: has each the probe in it, and what has an earlier one left behind?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglang_probe.cli.checks.model import Check
from sglang_probe.figures import counted
from sglang_probe.report.plain import printable

Process = Mapping[str, Any]


def judge_servers(processes: Sequence[Process]) -> list[Check]:
    """Return a check for each server that runs, and one for each process without a launcher."""
    launchers = [one for one in processes if one["sglang"] == "launcher" and one["visible"]]
    checks = [_server(one, [part for part in processes if part["server"] == one["pid"]]) for one in launchers]
    checks += [_left_over(one) for one in processes if one["orphaned"]]
    return checks or [Check("servers", "ok", "no SGLang server runs here now")]


def _server(launcher: Process, parts: Sequence[Process]) -> Check:
    everyone = [launcher, *parts]
    with_probe = [one for one in everyone if one["probe"]]
    details = {"pid": launcher["pid"], "parts": [one["pid"] for one in parts], "probed": [p["pid"] for p in with_probe]}
    says = f"a server runs here: {who(launcher)}, with {counted(len(parts), 'process', 'processes')} of its own"
    if with_probe:
        return Check(
            "servers", "ok", f"{says}; the probe is in it, in {printable(with_probe[0]['run'])}", None, details
        )
    if launcher["probe"] is None:
        unsure = "the probe may be in it: no file of events is open yet, or this user may not see it"
        return Check("servers", "unknown", f"{says}; {unsure}", None, details)
    return Check("servers", "ok", f"{says}; without the probe", "to have it there, restart it with the probe", details)


def _left_over(one: Process) -> Check:
    held = [gpu["bytes"] for gpu in one["gpus"] if gpu["bytes"] is not None]
    holds = f", holds {sum(held) / (1 << 20):.0f} MiB of {counted(len(one['gpus']), 'GPU')}" if held else ""
    says = f"{who(one)}{holds}: left over, its launcher is gone"
    details = {"pid": one["pid"], "parent": one["parent"], "gpus": one["gpus"]}
    return Check("left_over", "warning", says, f"if nobody needs it: kill {one['pid']}", details)


def who(one: Process) -> str:
    """Return a process as a person names it: pid, name, user, age."""
    parts = [f"pid {one['pid']}", printable(one["name"] or "?")]
    parts += [f"of {printable(one['user'])}"] if one["user"] else []
    parts += [f"up {age(one['age_s'])}"] if one["age_s"] is not None else []
    return ", ".join(parts)


def age(seconds: float) -> str:
    """Return a time in its largest unit: `3 h`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
