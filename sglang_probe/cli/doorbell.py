"""Where the top-level `sitecustomize` package of this installation lies."""

from __future__ import annotations

import os
from pathlib import Path

import sglang_probe
from sglang_probe.cli.errors import BadUse


def doorbell_directory() -> str:
    """Return the directory to put on PYTHONPATH: the wheel's `_inject`, or the root of a checkout.

    Raises:
        BadUse: there is none, or PYTHONPATH cannot hold it.
    """
    package = Path(sglang_probe.__file__).resolve().parent
    for directory in (package / "_inject", package.parent):
        if _is_ours(directory / "sitecustomize" / "__init__.py"):
            if os.pathsep in str(directory):
                raise BadUse(f"PYTHONPATH cannot hold {directory}: it contains {os.pathsep!r}; install somewhere else")
            return str(directory)
    raise BadUse(
        f"no sitecustomize package in {package / '_inject'} (a wheel's) or {package.parent} (a checkout's);"
        " reinstall sglang-probe"
    )


def _is_ours(doorbell: Path) -> bool:
    """Tell our doorbell from a distribution's own, which may lie beside us in site-packages."""
    try:
        return b"sglang_probe" in doorbell.read_bytes()
    except OSError:
        return False
