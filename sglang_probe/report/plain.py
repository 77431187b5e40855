"""Strings from outside that must not reach the terminal as they are.

Standard library only: the command line uses it before it knows whether an extra is installed.
"""

from __future__ import annotations

import re
from typing import Final

_ACTING: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What JSON may hold unescaped and terminals obey: C1 controls, marks of direction, invisible joiners."""


def printable(value: object) -> str:
    """Return `value` as text on one line: what is not printable (escapes, newlines, bidi controls) is shown escaped."""
    text = value if isinstance(value, str) else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_json(text: str) -> str:
    """Return a JSON document with every character escaped that could act on a terminal: the same document."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
