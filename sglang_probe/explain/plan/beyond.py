"""Settings in which two runs differ and that no rule of the plan knows: what they change cannot be predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Group
from sglang_probe.explain.plan.model import Change
from sglang_probe.figures import listed
from sglang_probe.timeline.model import Run

GIVEN: Final[Group] = "arguments given"
MANY: Final = 6


def beyond_of(run: Run, against: Run, planned: Sequence[Change]) -> tuple[str, ...]:
    """Return the flags that one of two runs was given, or was given otherwise, and that no change of the plan takes."""
    taken = {change.flag for change in planned}
    rows = compare([run, against]).provenance
    found = (row.key for row in rows if row.group == GIVEN and row.differs and row.counts)
    return tuple(flag for flag in found if flag not in taken)


def said_of(flags: Sequence[str]) -> str:
    """Say what that means for the numbers beside each other."""
    return f"the two were given {listed(flags, MANY)} differently, and no rule here knows what that changes"
