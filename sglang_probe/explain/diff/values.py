"""When two facts are the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sglang_probe.explain.diff.nature import ADDRESS

SAME_ON_A_CARD: Final = 1 << 20
"""Bytes of a GPU's memory below which two figures are the same: a driver's pages and NCCL's blocks vary by as much."""
SAME_TENANT: Final = 64 << 20
"""Bytes by which another process may grow between two runs and still be the same."""
NOT_RECORDED: Final = "not recorded of every side"
"""Why a fact does not count."""
NO_VARIABLES: Final = "a log names no variables"
"""Why a variable, or a flag as it was given, is not compared: the note that stands for all of them."""
TENANT_SHARE: Final = 0.05
"""By which what changed may differ from what a process holds: NVML counts a process a little short."""
PLAIN: Final = tuple({kind} for kind in (int, float, bool, type(None)))


def canonical(value: Any) -> str:
    """Return a value as a text that is equal where the value is, wherever its objects lie in memory."""
    return ADDRESS.sub("at ...", json.dumps(value, sort_keys=True, default=str))


def same(values: Iterable[Any]) -> bool:
    """Say whether all sides have one value."""
    values = tuple(values)
    if {type(value) for value in values} in PLAIN:  # no object's place in memory is in them
        return len(set(values)) == 1
    return len({canonical(value) for value in values}) <= 1


def near(values: Sequence[int | None], least: int = SAME_ON_A_CARD) -> bool:
    """Say whether bytes differ by less than `least`; unknown is near to unknown alone."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return not known
    return not known or max(known) - min(known) < least


def is_tenants(held: int, changed: int) -> bool:
    """Say whether memory that changed is what processes hold of it."""
    return abs(held - changed) <= max(SAME_TENANT, TENANT_SHARE * abs(changed))


def delta(values: Sequence[Any]) -> Any:
    """Return the second less the first, of two numbers; None of anything else."""
    if len(values) != 2 or not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return None
    return values[1] - values[0]
