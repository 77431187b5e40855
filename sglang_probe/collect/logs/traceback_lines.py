"""What the lines of Python's tracebacks are known by."""

from __future__ import annotations

import re
from typing import Final

HEAD: Final = "Traceback (most recent call last):"
EXCEPTION: Final = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Group|Timeout|Failure|Iteration|Died)|Exception)"
    r"(?::|$)|(?:[A-Za-z_]\w*\.)+[A-Z]\w*: "
)
CHAINS: Final = ("During handling of the above exception", "The above exception was the direct cause")
_LONGEST_NAME: Final = 200


def names_exception(text: str) -> bool:
    """Say whether a line is an exception's: its class and its message."""
    return EXCEPTION.match(text, 0, _LONGEST_NAME) is not None
