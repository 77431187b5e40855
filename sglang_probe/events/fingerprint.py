"""The fingerprint of a function: one routine for the agent (in memory) and for tools that read source files.

It answers "is this the body we know?" across releases, patches and checkouts. The block runs from `def` to the last
line of its last statement: decorators, trailing blanks and trailing comments do not count, the common indentation is
removed. Finding the end from the code object instead of by tokenising costs 12 us a function, not 1 ms.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

LENGTH = 16


def fingerprint_block(lines: Sequence[str], first: int, last: int) -> str:
    """Return 16 hex digits of sha256 over the lines `first` to `last` (from 1, both included) of a file.

    >>> fingerprint_block(["class A:", "    def f():  ", "        return 1"], 2, 3)
    '8795b1c438f59538'
    """
    indent = _indent(lines[first - 1])
    block = (line.rstrip() for line in lines[first - 1 : last])
    text = "\n".join(line[indent:] if not line[:indent].strip() else line for line in block)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def fingerprint_node(lines: Sequence[str], node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the fingerprint of a function parsed from a file's `lines`."""
    return fingerprint_block(lines, node.lineno, node.end_lineno or node.lineno)


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return the fingerprint of a live function, or None where its source cannot be read: a lambda has no `def`.

    Wrappers are followed through `__wrapped__` to SGLang's own function.
    """
    inner: Any = inspect.unwrap(function)
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    lines = linecache.getlines(code.co_filename) if isinstance(code, CodeType) else []
    if not isinstance(code, CodeType) or not lines or code.co_name == "<lambda>":
        return None
    first = _def_line(lines, code.co_firstlineno)
    return fingerprint_block(lines, first, _last_line(lines, first, code))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _def_line(lines: Sequence[str], start: int) -> int:
    # co_firstlineno is the first decorator's line, where there is one.
    number = start
    while number < len(lines) and not lines[number - 1].lstrip().startswith(("def ", "async def ")):
        number += 1
    return number


def _last_code_line(code: CodeType) -> int:
    own = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    nested = (_last_code_line(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return max([own, *nested])


def _last_line(lines: Sequence[str], first: int, code: CodeType) -> int:
    # The last instruction may sit above the end of its statement: closing brackets and arguments follow it.
    indent = _indent(lines[first - 1])
    last = max(first, _last_code_line(code))
    for number in range(last + 1, len(lines) + 1):
        text = lines[number - 1].strip()
        if text and not text.startswith("#"):
            if _indent(lines[number - 1]) <= indent:
                break
            last = number
    return last
