"""The server's arguments as a log has them, against those of the events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sglang_probe.collect.logs.model import Fact, LogRun

HIDDEN: Final = ("[redacted]", "<redacted>")
"""The probe's mark, and SGLang's own (0.5.22 on), which it sets for some arguments that are not given, too."""
PLAIN: Final = (bool, int, float, str, type(None))


def said_in(log: LogRun) -> Fact | None:
    """Return the line that has the server's arguments: the last, of a server that says them more than once."""
    said = [fact for fact in log.facts if fact.kind == "server_args"]
    return next((fact for fact in reversed(said) if isinstance(fact.values.get("arguments"), dict)), None)


def arguments_in(log: LogRun) -> dict[str, Any] | None:
    """Return the server's arguments; None where the log does not have them."""
    fact = said_in(log)
    return None if fact is None else fact.values["arguments"]


def comparable(said: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return the arguments that both have in a form that can be compared: objects print themselves in many ways."""
    return [name for name, value in said.items() if name in known and _alike(value, known[name])]


def differing(said: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return the arguments that both have, and not the same."""
    return [name for name in comparable(said, known) if _plain(said[name]) != _plain(known[name])]


def _alike(one: Any, other: Any) -> bool:
    if any(mark in value for value in (one, other) if isinstance(value, str) for mark in HIDDEN):
        return False
    if isinstance(one, str) and isinstance(other, str):
        return "(" not in one and "(" not in other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return True
    return isinstance(one, PLAIN) and isinstance(other, PLAIN)


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
