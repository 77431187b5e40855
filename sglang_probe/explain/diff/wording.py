"""A difference in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sglang_probe.explain.diff.arguments import FOUND, field_of
from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.names import names_of
from sglang_probe.explain.diff.structured import CUT, LONGEST, apart, brief, differing
from sglang_probe.explain.diff.values import NOT_RECORDED, canonical, same
from sglang_probe.figures import GIB, UNKNOWN, added, fraction, gib, listed

MANY: Final = 4
ABSENT: Final = {"arguments given": "not given", "variables": "unset", "visible devices": "unset"}
"""What None is, in a group where it is no gap."""
STRUCTURED: Final = frozenset({"arguments given", "arguments effective", "variables", "versions"})
"""Groups whose values may have parts of their own."""
WORDS: Final = {"custom all reduce": "custom all-reduce", "cuda graph": "CUDA graph"}
SGLANG: Final = {"version": "SGLang", "commit": "SGLang's commit", "dirty": "local changes", "path": "SGLang's path"}


def told(row: Row) -> str:
    """Return a row as a person reads it: `--mem-fraction-static 0.8 -> 0.55`."""
    if row.group == "functions":
        return _function(row)
    parts = differing(row.values) if row.group in STRUCTURED else []
    if parts:
        said = (f"{leaf.path} {' -> '.join(brief(text, UNKNOWN) for text in leaf.texts)}" for leaf in parts)
        return f"{title(row)}: {listed(list(said), MANY)}"
    news = row.effective if _is_news(row) else None
    made = f" (in effect {arrow(row, news)})" if news is not None else ""
    return f"{title(row)} {arrow(row, row.values)}{made}"


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
    """Return one side's value, cut where it is long."""
    text = _whole(row, value)
    return text if len(text) <= LONGEST or row.group == "tenants" else f"{text[:LONGEST]}{CUT}"


def _whole(row: Row, value: Any) -> str:
    if value is None:
        return UNKNOWN if row.why == NOT_RECORDED else ABSENT.get(row.group, UNKNOWN)
    if row.group == "tenants" and isinstance(value, list):
        return ", ".join(_tenant(one) for one in value[:MANY]) if value else "nobody else"
    if row.group == "functions":
        return str(value)[:8]
    if row.key == "total" or (row.group == "tenants" and isinstance(value, int)):
        return " and ".join(f"{gib(one)} GiB" for one in (value if isinstance(value, list) else [value]))
    if isinstance(value, bool):
        return _truth(row, value)
    return fraction(value) if isinstance(value, float) and abs(value) < GIB else _flat(value)


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


def arrow(row: Row, values: Sequence[Any]) -> str:
    """Return the values with an arrow between them."""
    return " -> ".join(texts_of(row, values))


def texts_of(row: Row, values: Sequence[Any]) -> list[str]:
    """Return the values of all sides so that they can be told apart: long ones from where they differ."""
    texts = [_whole(row, value) for value in values]
    if len(set(texts)) == 1 and not same(values):  # they differ in more than what is printed of them
        texts = [canonical(value) for value in values]
    return texts if row.group == "tenants" else apart(texts)


DEFAULT: Final = "SGLang's default fraction"


def is_default_fraction(row: Row) -> bool:
    """Say whether a row is the fraction that SGLang finds where nobody gives one; it must be known that nobody did."""
    return (row.group, row.key, row.why) == ("arguments effective", "mem_fraction_static", FOUND)


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


def signed(figure: str) -> str:
    """Return a figure with its sign."""
    return figure if figure.startswith("-") else f"+{figure}"


def change(before: int, after: int, precision: int | None = None) -> str:
    """Return what bytes changed by, in GiB, as it comes out of them as printed: 0.041 -> 0.085 is +0.044.

    `precision`: how far off the difference may be, in bytes; then that stands beside it: +0.04 +- 0.01.
    """
    if precision is None:
        return signed(added(after, -before))
    return shown_change(before, after, precision) or f"{signed(gib(0, precision))} +- {gib_up(precision)}"


def shown_change(before: int, after: int, precision: int) -> str | None:
    """Return the change of two figures of a log as it comes out of them as printed, with how far off it may be; None
    where they are printed alike, or what is between them rounds to nothing at their decimals.

    Worked example: 12.586 and 12.583 are printed 12.59 and 12.58; of the 0.003 between them no figure tells.
    """
    figures = gib(before, precision), gib(after, precision)
    changed = f"{float(figures[1]) - float(figures[0]):.{_places(figures[0])}f}"
    if not float(changed) or not float(gib(after - before, precision)):
        return None
    return f"{signed(changed)} +- {gib_up(precision)}"


def _places(figure: str) -> int:
    return len(figure.partition(".")[2])


def gib_up(precision: int) -> str:
    """Return a precision in GiB, rounded up to the decimals that `gib` shows with it, but two at least."""
    decimals = max(_places(gib(0, precision)), 2)
    return f"{math.ceil(max(precision - ROUNDED_UP, 1) * 10**decimals / GIB) / 10**decimals:.{decimals}f}"


ROUNDED_UP: Final = 1 << 10
"""More bytes than halves of a hundredth were rounded up by: two of them are 0.01 GiB, and no more."""


def set_to(row: Row) -> str:
    """Name a difference; of a switch what it is now."""
    turned = switch(row)
    if row.group == "functions":
        return f"the changed body of {short(row.key)}"
    if turned is None:
        return f"{DEFAULT} {arrow(row, row.values)}" if is_default_fraction(row) else told(row)
    what, (*_, is_on) = turned
    return f"{what} {'on' if is_on else 'off'} ({row.key})"
