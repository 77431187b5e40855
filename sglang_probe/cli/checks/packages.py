"""Judges of the packages in SGLang's environment: two the probe needs, two it uses where they are."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final

from sglang_probe.cli.checks.command import Asked
from sglang_probe.cli.checks.interpreter import OLDEST
from sglang_probe.cli.checks.model import Check, Facts
from sglang_probe.report.plain import printable

NEEDED: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]]] = {
    "wrapt": ((1, 16), (3,)),
    "structlog": ((23, 1), None),
}
"""From which version on, and below which: as the project's own requirements say."""


def judge_packages(facts: Facts, asked: Asked, *, has_gpu: bool) -> list[Check]:
    """Return a check for each package; what NVML needs is missed only where there is a GPU."""
    if tuple(facts["interpreter"]["version"][:2]) < OLDEST:
        return [Check("packages", "unknown", "not looked at: that Python is too old")]
    if facts["interpreter"]["flags"]["no_site"]:
        return [Check("packages", "unknown", "not looked at: -S hides what is installed")]
    needed = [_needed(name, facts, asked) for name in NEEDED]
    return [*needed, *_agent(facts, needed), _orjson(facts, asked), *_pynvml(facts, asked, has_gpu)]


def _needed(name: str, facts: Facts, asked: Asked) -> Check:
    imported, version = facts["imports"][name], facts["distributions"].get(name)
    install = f"{_python(asked)} -m pip install {' '.join(shlex.quote(n + _range(n)) for n in NEEDED)}"
    details = {"version": version, "file": imported.get("file")}
    if imported["missing"]:
        return Check(name, "error", f"not installed in that Python{_in_user_site(name, facts)}", install, details)
    if imported["error"]:
        return Check(name, "error", f"cannot be imported there: {printable(imported['error'])}", install, details)
    if version is None:
        return Check(name, "warning", f"{imported['file']}, of unknown version", install, details)
    if not in_range(version, *NEEDED[name]):
        return Check(name, "warning", f"{version}: the probe is tested with {name}{_range(name)}", install, details)
    return Check(name, "ok", version, None, details)


def _agent(facts: Facts, needed: list[Check]) -> list[Check]:
    """The agent's own import: what a server would do when its first module loads."""
    loaded = facts["agent"]
    if loaded is None or any(check.state == "error" for check in needed):
        return []  # the doorbell or the package says why
    if loaded["error"]:
        return [
            Check("agent", "error", f"cannot be loaded there: {printable(loaded['error'])}", "reinstall sglang-probe")
        ]
    return [Check("agent", "ok", "loads there", None, {"file": loaded["file"]})]


def _orjson(facts: Facts, asked: Asked) -> Check:
    version = facts["distributions"].get("orjson")
    if version is None:
        install = f"to have it: {_python(asked)} -m pip install orjson"
        return Check("orjson", "ok", "absent: the standard library writes the events, more slowly", install)
    return Check("orjson", "ok", version, None, {"version": version})


def _pynvml(facts: Facts, asked: Asked, has_gpu: bool) -> list[Check]:
    found = facts["distributions"]
    version, shell = found.get("nvidia-ml-py"), found.get("pynvml")
    install = f"{_python(asked)} -m pip install nvidia-ml-py"
    checks = []
    if version is None and shell is None:
        lost = "absent: no readings by NVML, so neither the card's total nor other processes on it"
        quiet = "absent, and not needed without a GPU"
        checks.append(Check("nvidia-ml-py", *(("warning", lost, install) if has_gpu else ("ok", quiet))))
    elif version is not None:
        checks.append(Check("nvidia-ml-py", "ok", version, None, {"version": version}))
    if shell is not None:
        mend = f"{_python(asked)} -m pip uninstall pynvml, then {install}"
        says = f"{shell}: the deprecated shell of nvidia-ml-py, of which torch warns"
        checks.append(Check("pynvml", "warning", says, mend, {"version": shell}))
    return checks


def in_range(version: str, least: tuple[int, ...], below: tuple[int, ...] | None) -> bool:
    """Tell whether a version lies in a range; what follows its numbers (`rc1`, `.dev0`) is not looked at."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))
    return numbers >= least and (below is None or numbers < below)


def _range(name: str) -> str:
    least, below = NEEDED[name]
    upper = "" if below is None else ",<" + ".".join(map(str, below))
    return ">=" + ".".join(map(str, least)) + upper


def _in_user_site(name: str, facts: Facts) -> str:
    """-s and -I hide what was installed with --user: that is worth a word."""
    site, flags = facts["interpreter"]["user_site"], facts["interpreter"]["flags"]
    if site and flags["no_user_site"] and Path(site, name).is_dir():
        return f"; the one in {site} is hidden by -s, -I or PYTHONNOUSERSITE"
    return ""


def _python(asked: Asked) -> str:
    """Return that Python as a shell takes it: a path with a newline or an escape in it as `$'...'`, on one line."""
    path = asked.python
    if path.isprintable():
        return shlex.quote(path)
    plain = (one if one.isprintable() and one not in "\\'" else _bytes(one) for one in path)
    return f"$'{''.join(plain)}'"


def _bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
