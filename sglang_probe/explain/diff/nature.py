"""What differs between any two runs by nature, and what differs without ever being a cause: one table.

A row that is not `listed` is no difference; `--all` shows it with its reason. A row that is listed does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sglang_probe.explain.diff.model import Group, Row

_LOOPBACK: Final = re.compile(r"^(\w+://)?(127\.|localhost\b|\[?::1\b)")


def _always(_: Row, __: Sequence[Row]) -> bool:
    return True


def _on_loopback(row: Row, _: Sequence[Row]) -> bool:
    return all(value is None or (isinstance(value, str) and _LOOPBACK.match(value)) for value in row.values)


def _nobody_gave(row: Row, rows: Sequence[Row]) -> bool:
    flag = f"--{row.key.replace('_', '-')}"
    return not any(one.group == "arguments given" and one.key == flag for one in rows)


class Natural(NamedTuple):
    """One row of the table: which facts, under which condition (of the fact and of all facts), and why."""

    groups: frozenset[Group]
    key: re.Pattern[str]
    reason: str
    when: Callable[[Row, Sequence[Row]], bool] = _always
    listed: bool = False


def _natural(groups: Sequence[Group], key: str, reason: str, **more: Any) -> Natural:
    return Natural(frozenset(groups), re.compile(key), reason, **more)


ARGUMENTS: Final[tuple[Group, ...]] = ("arguments given", "arguments effective")

BY_NATURE: Final[tuple[Natural, ...]] = (
    _natural(["run"], "run id", "every run has its own"),
    _natural(["run"], "started", "every run has its own time"),
    _natural(["run"], "pids", "every process has its own"),
    _natural(ARGUMENTS, r"(--)?(.*[-_])?ports?", "a port is whichever was free"),
    _natural(ARGUMENTS, r"(--)?dist[-_]init[-_]addr", "its port on loopback is whichever was free", when=_on_loopback),
    _natural(["arguments effective"], "random_seed", "drawn anew where it is not given", when=_nobody_gave),
    _natural(["variables"], "SGLANG_RUN_ID", "SGLang gives every start its own"),
    _natural(["variables"], r"SGLANG_PROBE(_.*)?", "settings and paths of the probe's own"),
    _natural(["versions"], r"probe|wrapt|structlog", "of the probe: SGLang does not use it", listed=True),
    _natural(["machine"], ".*", "the name of a machine costs no memory", listed=True),
)

ADDRESS: Final = re.compile(r"\bat 0x[0-9a-f]+")
"""Where an object lies in memory, in the text of one: taken out before values are compared."""


def natural(row: Row, rows: Sequence[Row]) -> Natural | None:
    """Return the row of the table that a fact falls under; `rows` are all facts. None: it is a difference."""
    for one in BY_NATURE:
        if row.group in one.groups and one.key.fullmatch(row.key) and one.when(row, rows):
            return one
    return None
