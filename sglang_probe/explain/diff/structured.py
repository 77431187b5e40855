"""Values with parts of their own: only the parts that differ are worth a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

SHORT: Final = 24
"""Characters of a list that is printed whole."""
LONGEST: Final = 48
"""Characters of a value that are shown; the JSON has all of them."""
BEFORE: Final = 12
"""Characters shown before the place from which two long texts differ."""
CUT: Final = "..."
_DEEPEST: Final = 8
_MOST: Final = 1 << 16
"""Characters of a value that is taken apart."""
_OBJECT: Final = re.compile(r"\w+\((.*)\)", re.DOTALL)
_PART: Final = re.compile(r"\s*(\w+)=(.*)", re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+")


class Leaf(NamedTuple):
    """A part in which values differ: `decode.max_bs`, and its text on each side."""

    path: str
    texts: tuple[str | None, ...]


def differing(values: Sequence[Any]) -> list[Leaf]:
    """Return the parts in which values differ; nothing where one of them has no parts.

    Worked example: `C(a=1, b=D(c=2))` and `C(a=1, b=D(c=3))` differ in `b.c`, 2 and 3.
    """
    tables = [dict(_leaves(value)) if value is not None else {} for value in values]
    if any(not table or "" in table for table, value in zip(tables, values, strict=True) if value is not None):
        return []
    paths = dict.fromkeys(path for table in tables for path in table)
    found = (Leaf(path, tuple(table.get(path) for table in tables)) for path in paths)
    return [leaf for leaf in found if len(set(leaf.texts)) > 1]


def _leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the parts of a mapping, or of the text of one of Python's objects; a value without parts has no path."""
    table = _table(value) if depth < _DEEPEST else None
    if not table:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)
        return
    for name, inner in table:
        yield from _leaves(inner, f"{path}.{name}" if path else name, depth + 1)


def _table(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, dict):
        return [(str(name), inner) for name, inner in value.items()]
    found = _OBJECT.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MOST else None
    if found is None:
        return None
    parts = [_PART.fullmatch(part) for part in _split(found[1])]
    return [(part[1], part[2].strip()) for part in parts if part] if all(parts) else None


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas that are in no bracket and no quotes."""
    start, depth, quote = 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def numbers(text: str | None) -> list[int]:
    """Return the whole numbers of a list's text; empty where it is no list."""
    return [int(one[:20]) for one in _NUMBER.findall(text)] if text is not None and text.startswith("[") else []


def brief(text: str | None, absent: str) -> str:
    """Return a part's text: of a long list how many values it has, and which is the first and the last."""
    if text is None:
        return absent
    counts = numbers(text) if len(text) > SHORT else []
    if counts:
        return f"{len(counts)} values, {counts[0]} to {counts[-1]}"
    bare = text.strip("'\"")
    return bare if len(bare) <= LONGEST else f"{bare[:LONGEST]}{CUT}"


def apart(texts: Sequence[str]) -> list[str]:
    """Return texts cut to a length at which they can be told apart: long ones from just before where they differ."""
    start = 0
    if len(set(texts)) > 1 and all(len(text) > LONGEST for text in texts):
        start = max(_alike(texts) - BEFORE, 0)
        start = 0 if start < BEFORE else start
    cut = [text[start:] if start else text for text in texts]
    shown = [one if len(one) <= LONGEST else f"{one[:LONGEST]}{CUT}" for one in cut]
    return [f"{CUT}{one}" for one in shown] if start else shown


def _alike(texts: Sequence[str]) -> int:
    """Return how many characters all texts begin with."""
    columns = zip(*texts, strict=False)
    shortest = min(map(len, texts))
    return next((place for place, letters in enumerate(columns) if len(set(letters)) > 1), shortest)
