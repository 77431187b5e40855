"""What a row of the tables of formats is: a line's words as a regex whose groups name the values they hold.

A group's name ends in how its text is read: `avail__gib`, `size__gb` (10^9), `local__mib`, `tokens__i`, `elapsed_s__f`;
without an ending it is a word, kept as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sglang_probe.collect.logs.amount import GB_DECIMAL, GIB, MIB, NUMBER, amount


def gb(name: str) -> str:
    """Return the pattern of a figure in GiB, as SGLang prints it."""
    return rf"(?P<{name}__gib>{NUMBER}) ?GB"


def count(name: str) -> str:
    """Return the pattern of a whole number."""
    return rf"(?P<{name}__i>-?\d{{1,18}})"


AVAIL: Final = "avail mem=" + gb("avail")
USED: Final = "mem usage=" + gb("mem_usage")
SECONDS: Final = r"(?P<elapsed_s__f>-?\d{1,12}(?:\.\d{1,12})?)"

Values: TypeAlias = dict[str, Any]
More: TypeAlias = Callable[[Mapping[str, str | None], Values], Values]
"""Takes a match's groups and the values read from them; returns all values."""

READERS: Final[dict[str, Callable[[str], Any]]] = {
    "gib": lambda text: amount(text, GIB),
    "gb": lambda text: amount(text, GB_DECIMAL),
    "mib": lambda text: amount(text, MIB),
    "exact": lambda text: amount(text, GIB, exact=True),
    "i": int,
    "f": float,
}


class Format(NamedTuple):
    """One wording of one kind of line."""

    kind: str
    needle: str
    """Stands in every such line; the first thing that is looked for."""
    pattern: re.Pattern[str]
    more: More | None = None
    constants: tuple[tuple[str, Any], ...] = ()

    def read(self, text: str) -> tuple[Values, int] | None:
        """Return the values that a text beginning with such a line holds, and where the line ends in it."""
        match = self.pattern.match(text) if self.needle in text else None
        if match is None:
            return None
        groups = match.groupdict()
        values = dict(self.constants)
        for group, part in groups.items():
            if part is not None and not group.startswith("_"):
                name, _, how = group.partition("__")
                values[name] = READERS[how](part) if how else part
        return values if self.more is None else self.more(groups, values), match.end()


def line(kind: str, needle: str, pattern: str, more: More | None = None, **constants: Any) -> Format:
    """Return a row of a table; a pattern begins where the line does, and a dot in it stands for a newline too."""
    return Format(kind, needle, re.compile(pattern, re.DOTALL), more, tuple(constants.items()))
