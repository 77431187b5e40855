"""Labels of ranks as ranges: 512 names in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sglang_probe.figures import listed
from sglang_probe.report.plain import printable

MOST: Final = 6
"""Ranges named in one place; what is more is counted."""
_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


def ranges(labels: Sequence[str], most: int = MOST) -> str:
    """Return labels, in their order, with runs of them folded: `TP0-TP6, TP8-TP511`."""
    found: list[tuple[str, int, int, str, str]] = []
    for label in labels:
        match = _NUMBERED.fullmatch(label)
        prefix, number = (match[1], int(match[2])) if match else (label, -1)
        if found and match and found[-1][0] == prefix and found[-1][2] + 1 == number:
            found[-1] = (*found[-1][:2], number, found[-1][3], label)
        else:
            found.append((prefix, number, number, label, label))
    return printable(listed([_range(*one) for one in found], most))


def _range(prefix: str, first: int, last: int, begins: str, ends: str) -> str:
    if first == last:
        return begins
    shared = max(prefix.rfind(" "), prefix.rfind(":")) + 1  # `DP0 TP0-TP7`: the part that differs is enough
    return f"{begins}-{ends[shared:]}"
