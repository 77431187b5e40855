"""Were all of a run's files given? A file named by itself may have others of its run beside it."""

from __future__ import annotations

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
    read = {Path(file).absolute() for file in files if _OURS.fullmatch(Path(file).name)}
    return sum(
        1
        for directory in sorted({file.parent for file in read})
        for path in _listed(directory)
        if _OURS.fullmatch(path.name) and path not in read
    )


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []
