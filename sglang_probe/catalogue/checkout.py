"""The git checkout that a package runs from: its commit, and whether it has local changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def checkout(path: str, timeout_s: float) -> tuple[str | None, bool | None]:
    """Return commit and dirty flag of the git checkout around a package, or None twice where it is none.

    Git is run twice, each time for at most `timeout_s` seconds; what it does not answer is None. Nothing is raised.
    """
    if not _has_git(path):
        return None, None
    status = _git(path, timeout_s, "status", "--porcelain", "--untracked-files=no")
    return _git(path, timeout_s, "rev-parse", "HEAD"), None if status is None else bool(status)


def _has_git(path: str) -> bool:
    if f"{os.sep}site-packages{os.sep}" in path + os.sep:  # an installed wheel, whatever repository lies around it
        return False
    ups = (Path(path), *Path(path).parents)
    return any(os.path.exists(up / ".git") for up in ups)  # noqa: PTH110 - Path.exists raises where it may not look


def _git(path: str, timeout_s: float, *command: str) -> str | None:
    # A monitor is a program of the checkout's; a lock would be a file left behind.
    words = ["git", "-c", "core.fsmonitor=false", "-C", path, *command]
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_s, check=True, env=environ, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
