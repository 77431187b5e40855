"""What one line, or one record of several lines, is read as."""

from __future__ import annotations

from typing import Any

from sglang_probe.collect.logs.formats import facts_of
from sglang_probe.collect.logs.model import Entry, Fact


def read(text: str, *, prefixed: bool = True) -> tuple[Fact, ...]:
    """Return the facts of a record of SGLang's; without its prefix where `prefixed` is false."""
    return facts_of(Entry(file="a.log", line=1, text=text, prefixed=prefixed))


def kinds(text: str, *, prefixed: bool = True) -> list[str]:
    """Return the kinds of the facts of a record."""
    return [fact.kind for fact in read(text, prefixed=prefixed)]


def values(text: str, kind: str, *, prefixed: bool = True) -> dict[str, Any]:
    """Return the values of the one fact of a kind."""
    (found,) = [fact.values for fact in read(text, prefixed=prefixed) if fact.kind == kind]
    return found
