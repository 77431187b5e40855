"""Were all of a run's files given? A file named by itself may have others of its run beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_OURS: Final = re.compile(r".+\.\d+\.\d+\.jsonl")
"""<host>.<pid>.<start>.jsonl, as the agent names the file of a process."""


def unread_beside(files: Iterable[str]) -> int:
    """Return how many files named as the agent does lie beside these and are not among them; 0 where none can be seen.

    Only what was named as a file of the agent's counts: a collection under other names tells nothing.
    """
    read: dict[Path, set[str]] = {}
    directories: dict[str, Path] = {}
    for file in files:
        directory, name = os.path.split(file)
        if _OURS.fullmatch(name):
            if directory not in directories:
                directories[directory] = Path(directory).absolute()
            read.setdefault(directories[directory], set()).add(name)
    return sum(
        1
        for directory, names in read.items()
        for name in _listed(directory)
        if _OURS.fullmatch(name) and name not in names
    )


def _listed(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []
