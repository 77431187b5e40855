"""Matplotlib as it comes: whatever users set for pictures of their own, a report's are the same to the byte."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_BACKEND: Final = "MPLBACKEND"
_NOT_ABOUT_LOOKS: Final = frozenset({"backend", "backend_fallback", "interactive", "toolbar"})


@contextmanager
def without_settings() -> Iterator[None]:
    """Load matplotlib in such a block: no file of settings is read but its own, and no backend of the environment's.

    It looks into the current directory before it takes any other file, even the one that MATPLOTLIBRC names; a file
    that is none of settings would end the import.
    """
    own = _own_directory()
    backend = os.environ.pop(_BACKEND, None)
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        if own is not None:
            os.chdir(own)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
        if backend is not None:
            os.environ[_BACKEND] = backend


def looks(own: Any, ours: Any) -> Any:
    """Return all settings: ours, and matplotlib's own for the rest, whatever a program has set since it was loaded."""
    return {**{key: value for key, value in own.items() if key not in _NOT_ABOUT_LOOKS}, **ours}


def _own_directory() -> Path | None:
    """Return where matplotlib keeps its own file of settings; None where it is not installed."""
    found = importlib.util.find_spec("matplotlib")
    return None if found is None or found.origin is None else Path(found.origin).parent / "mpl-data"
