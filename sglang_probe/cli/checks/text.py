"""The checks as text for a person: a line each, and the verdict last."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from sglang_probe.cli.checks.model import Check, State
from sglang_probe.figures import counted
from sglang_probe.report.plain import printable

MARKS: Final[dict[State, str]] = {"ok": "ok", "warning": "warn", "error": "FAIL", "unknown": "?"}
COLOURS: Final[dict[State, str]] = {"ok": "32", "warning": "33", "error": "31", "unknown": "36"}
_MARK = 5
_NAME = 14


def checks_text(checks: Sequence[Check], width: int, *, colour: bool = False) -> str:
    """Return the checks and the verdict, at most `width` columns wide but for a path or a command that is longer."""
    lines = [line for check in checks for line in _lines(check, width, colour)]
    return "\n".join([*lines, "", *textwrap.wrap(verdict(checks), width), ""])


def _lines(check: Check, width: int, colour: bool) -> list[str]:
    indent = " " * (_MARK + _NAME)
    head = f"{MARKS[check.state]:<{_MARK}}{check.check:<{_NAME - 1}} "
    lines = _wrapped(printable(check.says), width, head, indent)
    if check.do:
        lines += _wrapped(printable(check.do), width, f"{indent}-> ", f"{indent}   ")
    if colour:
        mark = MARKS[check.state]
        lines[0] = f"\x1b[{COLOURS[check.state]}m{mark}\x1b[0m{lines[0][len(mark) :]}"
    return lines


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def works(checks: Sequence[Check]) -> bool:
    """Tell whether injection would work: nothing looked at is in its way."""
    return all(check.state != "error" for check in checks)


def verdict(checks: Sequence[Check]) -> str:
    """Return the answer in one sentence."""
    in_the_way = list(dict.fromkeys(check.check for check in checks if check.state == "error"))
    if in_the_way:
        return f"Injection would not work here: see {', '.join(in_the_way)} above."
    warnings = sum(check.state == "warning" for check in checks)
    return (
        "Injection would work here."
        if not warnings
        else f"Injection would work here, with {counted(warnings, 'warning')}."
    )
