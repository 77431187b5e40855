"""Entries whose text is shown to people -> the same without secrets: a log holds keys in its arguments and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.model import Entry
from sglang_probe.events.redact import MARK, redact_text

_HARMLESS: Final = frozenset({"batch", "retract", "graph_progress", "capacity", "kv_alloc"})
"""Kinds of whole known lines, full of counts of tokens, which look like a token's value."""
_VALUE: Final = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,)}]*)"""
_LONGER: Final = 8
"""A mark may be so many times as long as the secret in whose place it stands."""


def clean(entry: Entry, said: Sequence[tuple[str, dict[str, Any]]]) -> Entry:
    """Return an entry that says these (kind, values), its text and theirs without secrets."""
    if all(kind in _HARMLESS for kind, _ in said):
        return entry
    shown = entry.text
    for kind, values in said:
        if kind == "server_args":
            for name in _secret_names(values.get("arguments") or {}):
                shown = re.sub(rf"\b{re.escape(name)}(['\"]?\s*[=:]\s*){_VALUE}", rf"{name}\1{MARK}", shown)
        for name, value in values.items():
            if isinstance(value, str) and name != "stacktrace":  # which is cleaned already, from its end
                values[name] = without_secrets(value)
    shown = without_secrets(shown)
    return entry if shown == entry.text else msgspec.structs.replace(entry, text=shown)


def without_secrets(text: str) -> str:
    """Return a whole text without its secrets."""
    return redact_text(text, _LONGER * len(text.encode("utf-8", "replace")) + len(MARK))


def _secret_names(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if value == MARK:
            yield name
        elif isinstance(value, Mapping):
            yield from _secret_names(value)
