"""A difference in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sglang_probe.explain.diff.arguments import field_of
from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.sides import names_of
from sglang_probe.explain.diff.values import same
from sglang_probe.figures import GIB, UNKNOWN, fraction, gib, listed

LONGEST: Final = 48
"""Characters of a value that are shown; the JSON has all of them."""
MANY: Final = 4
ABSENT: Final = {"arguments given": "not given", "variables": "unset", "visible devices": "unset"}
"""What None is, in a group where it is no gap."""
WORDS: Final = {"custom all reduce": "custom all-reduce", "cuda graph": "CUDA graph"}
SGLANG: Final = {"version": "SGLang", "commit": "SGLang's commit", "dirty": "local changes", "path": "SGLang's path"}


def told(row: Row) -> str:
    """Return a row as a person reads it: `--mem-fraction-static 0.8 -> 0.55`."""
    if row.group == "functions":
        return _function(row)
    news = row.effective if _is_news(row) else None
    made = f" (in effect {_arrow(row, news)})" if news is not None else ""
    return f"{title(row)} {_arrow(row, row.values)}{made}"


def title(row: Row) -> str:
    """Return what a row is about."""
    if row.group == "sglang":
        return SGLANG[row.key]
    if row.group == "functions":
        return row.key.rpartition(":")[2]
    if row.group in {"cards", "machine"}:
        return f"card's {row.key}" if row.group == "cards" else row.key
    return "GPUs used" if (row.group, row.key) == ("visible devices", "used") else row.key


def shown(row: Row, value: Any) -> str:
    """Return one side's value."""
    if value is None:
        return UNKNOWN if row.why and "recorded" in row.why else ABSENT.get(row.group, UNKNOWN)
    if row.group == "tenants" and isinstance(value, list):
        return ", ".join(_tenant(one) for one in value[:MANY]) if value else "nobody else"
    if row.group == "functions":
        return str(value)[:8]
    if row.key == "total" or (row.group == "tenants" and isinstance(value, int)):
        return " and ".join(f"{gib(one)} GiB" for one in (value if isinstance(value, list) else [value]))
    if isinstance(value, bool):
        return _truth(row, value)
    text = fraction(value) if isinstance(value, float) and abs(value) < GIB else _flat(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _truth(row: Row, value: bool) -> str:
    if row.group == "arguments given":
        return "given" if value else "False"
    return ("yes" if value else "no") if row.group == "sglang" else str(value)


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_news(row: Row) -> bool:
    """Say whether what is in effect is not what the flag already says."""
    if row.effective is None or same(row.effective):
        return False
    pairs = zip(row.values, row.effective, strict=True)
    return not all(_is_that(given, made) for given, made in pairs) and switch(row) is None


def _is_that(given: Any, made: Any) -> bool:
    try:
        return given == made or float(given) == float(made)
    except (TypeError, ValueError):
        return False


def _arrow(row: Row, values: Sequence[Any]) -> str:
    return " -> ".join(shown(row, value) for value in values)


def short(function: str) -> str:
    """Return a function as SGLang's people call it: without its module, and without its class where it is a method."""
    name = function.rpartition(":")[2]
    owner, _, method = name.rpartition(".")
    return name if not owner or method.startswith("__") else method


def _function(row: Row) -> str:
    if None not in row.values:
        return f"the body of {short(row.key)} changed"
    sides = [name for name, value in zip(names_of(len(row.values)), row.values, strict=True) if value is None]
    return f"{short(row.key)} is moved, absent or not loaded in {listed(sides, MANY)}"


def _tenant(one: Mapping[str, Any]) -> str:
    name = f" {one['name']}" if one.get("name") else ""
    return f"{'left-over ' if one.get('left_over') else ''}pid {one.get('pid')}{name} {gib(one.get('bytes'))} GiB"


def tenants_in_words(rows: Sequence[Row], side: int) -> str | None:
    """Return the tenants of one side, over all cards: `left-over pid 6832/6833, 127.574 GiB`; None: it has none."""
    found = [one for row in rows if isinstance(row.values[side], list) for one in row.values[side]]
    if not found:
        return None
    pids = "/".join(dict.fromkeys(str(one["pid"]) for one in found[:MANY]))
    more = f" and {len(found) - MANY} more" if len(found) > MANY else ""
    sizes = list(dict.fromkeys(gib(one["bytes"]) for one in found))
    size = f"{sizes[0]} GiB" if len(sizes) == 1 else f"{listed(sizes, MANY)} GiB"
    kind = "left-over pid" if all(one["left_over"] for one in found) else "pid"
    names = sorted({str(one["name"]) for one in found if one["name"]})
    called = f" {names[0]}" if len(names) == 1 else ""
    return f"{kind} {pids}{more}{called}, {size}"


def switch(row: Row) -> tuple[str, tuple[bool, ...]] | None:
    """Return what a flag without a value turns on or off, and whether it is on, side by side; None for other rows."""
    values = row.effective or row.values
    if row.group == "arguments given" and row.effective is None:
        values = tuple(bool(value) if value in (None, True, False) else value for value in values)
    name = field_of(row.key)
    verb, _, what = name.partition("_")
    if verb not in {"disable", "enable"} or not all(isinstance(value, bool) for value in values):
        return None
    words = what.replace("_", " ")
    return WORDS.get(words, words), tuple(value is (verb == "enable") for value in values)


def signed_gib(count: int) -> str:
    """Return bytes as GiB with a sign, and the unit."""
    return f"{'-' if count < 0 else '+'}{gib(abs(count))} GiB"
