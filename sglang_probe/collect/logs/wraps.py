"""A text that a terminal or a collector cut at a fixed width is seen by its lines, and put together line by line.

Copied from a window of 80 columns, no line is longer than 80, many are exactly that long, and what follows those is no
line of its own. (A single record that was wrapped otherwise is put together by its format: assemble.)
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from sglang_probe.collect.logs import prefix
from sglang_probe.collect.logs.carriers import Carried, uncarry
from sglang_probe.collect.logs.traceback_lines import CHAINS, HEAD, names_exception

WIDTHS: Final = range(40, 401)
_MIN_SHAPES: Final = 3
"""Lines of exactly the width that differ in more than figures: ranks say the same, each at the same length."""
_MIN_SHARE: Final = 0.8
"""Of those, how many go on in the next line."""
_DIGITS: Final = re.compile(r"\d")
_OWN: Final = re.compile(r'    |  File "|[>|`]|\{"')


def width_of(block: bytes) -> int | None:
    """Return the width that a text was cut at, by its beginning; None where it was not."""
    if len(max(block.split(b"\n"), key=len)) > 4 * WIDTHS.stop:  # four bytes a character at most
        return None
    lines = [prefix.plain(line.rstrip("\r")) for line in block.decode("utf-8", "replace").split("\n")]
    width = max(map(len, lines))
    cut = [(line, following) for line, following in pairwise(lines) if len(line) == width]
    if width not in WIDTHS or len({_DIGITS.sub("0", line) for line, _ in cut}) < _MIN_SHAPES:
        return None
    return width if sum(goes_on(following) for _, following in cut) >= _MIN_SHARE * len(cut) else None


def goes_on(following: str) -> bool:
    """Say whether a line may be the rest of the one before: it does not begin as a line of its own."""
    text = prefix.plain(following)
    if not text.strip() or prefix.PREFIX.search(text) or _OWN.match(text) or uncarry(Carried(text)).text != text:
        return False
    return not (text.startswith(CHAINS) or HEAD in text or names_exception(text))


def between(line: str, width: int) -> str | None:
    """Return what a line and its rest are joined with; None where the line is not cut. Copying drops a last blank."""
    size = len(prefix.plain(line))
    return "" if size == width else " " if size == width - 1 else None
