"""The other lines with a figure of memory: buffers, workspaces and budgets for which there is no kind of their own.

They are kept with their words, so that a reader can show them; no sum is made of them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sglang_probe.collect.logs.amount import GB_DECIMAL, GIB, NUMBER, UNITS, amount

_FIGURE: Final = re.compile(rf"(?<![\w.])({NUMBER}) ?(GiB|MiB|GB|MB)(?![\w/])")
_HOST: Final = re.compile(r"\bhost\b|UMBP|preflight", re.IGNORECASE)
MOST: Final = 16
"""Figures of one line; more is a table of something else."""


def figures_in(text: str) -> dict[str, Any] | None:
    """Return `what` (the line, at most 200 characters) and its figures in their order; None where it has none."""
    line = text.partition("\n")[0]
    found = []
    for match in _FIGURE.finditer(line):
        unit = GB_DECIMAL if match[2] == "GB" and _HOST.search(line) else UNITS.get(match[2], GIB)
        size = amount(match[1], unit)
        if size is not None:
            found.append(size)
    return {"what": line[:200], "figures": found[:MOST]} if found else None
