"""What the tests of `doctor` share."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Doctor = Callable[..., dict[str, Any]]

RELEASE = "0.5.14"
WATCHED = "sglang.srt.managers.detokenizer_manager"
"""A module with a target: a process that has the probe writes events once it has loaded."""


def check(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in document["checks"] if one["check"] == name)
    return dict(found)


def states(document: dict[str, Any]) -> dict[str, str]:
    return {one["check"]: one["state"] for one in document["checks"]}


def make_venv(directory: Path, *paths: Path) -> Path:
    """Make an environment that has `paths` on its sys.path, and return its Python."""
    venv.create(directory, symlinks=True, with_pip=False)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return directory / "bin" / "python"
