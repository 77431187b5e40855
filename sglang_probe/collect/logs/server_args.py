"""`server_args=ServerArgs(...)` or, from 0.5.19 on, `server_args={...}` -> the arguments, as events hold them.

Nothing is evaluated but literals. What is no literal, such as `CudaGraphConfig(decode=...)`, stays the text that it is;
a member of an enumeration, `<Mode.AUTO: 'auto'>`, is its value. Of a text that was cut the whole arguments are kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from sglang_probe.events.redact import redact

BEGIN: Final = re.compile(r"(?:server_args=)?(?:ServerArgs\(|(?<=server_args=)\{)")
_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[()\[\]{},'"]|[^'"()\[\]{},]+""", re.DOTALL)
"""A quote alone is one that nothing closes: the text was cut in it."""
_ENUM: Final = re.compile(r"<[\w.]+: (.*)>", re.DOTALL)
_WORDS: Final = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_PARTS: Final = {"(": ")", "[": "]", "{": "}"}


@lru_cache(maxsize=4)
def arguments_in(text: str) -> dict[str, Any] | None:
    """Return the arguments that a line holds, secrets redacted; None where it is no such line.

    A server that is started again and again prints the same: equal texts share their arguments, which nobody
    changes.
    """
    begin = BEGIN.match(text)
    if begin is None:
        return None
    separator = ":" if begin[0].endswith("{") else "="
    found: dict[str, Any] = {}
    for part in _split(text, begin.end()):
        name, _, value = part.partition(separator)
        name = name.strip().strip("'\"")
        if name and value:
            found[name] = value_of(value.strip())
    clean: dict[str, Any] = redact({name: value for name, value in found.items() if not name.startswith("_")})
    return clean


def is_complete(text: str) -> bool:
    """Say whether the text ends where its arguments do."""
    begin = BEGIN.match(text)
    return begin is not None and _end(text, begin.end()) is not None


def is_cut(text: str) -> bool:
    """Say whether a text begins with arguments and ends inside them."""
    return BEGIN.match(text) is not None and not is_complete(text)


def value_of(source: str) -> Any:
    """Return the value that a repr stands for; the text itself where it is no literal."""
    enum = _ENUM.fullmatch(source)
    if enum:
        return value_of(enum[1])
    if source in _WORDS:
        return _WORDS[source]
    try:
        return ast.literal_eval(source)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return source


def _split(text: str, start: int) -> Iterator[str]:
    """Yield the whole arguments: those that a comma or the closing bracket ends."""
    depth, begin = 0, start
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in {"'", '"'}:
            return
        if token in _PARTS:
            depth += 1
        elif token in ")]}":
            depth -= 1
            if depth < 0:
                yield text[begin : match.start()]
                return
        elif token == "," and depth == 0:
            yield text[begin : match.start()]
            begin = match.end()


def _end(text: str, start: int) -> int | None:
    depth = 0
    for match in _TOKEN.finditer(text, start):
        if match[0] in {"'", '"'}:
            return None
        if match[0] in _PARTS:
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
            if depth < 0:
                return match.end()
    return None
