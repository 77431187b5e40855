"""The rank that charts show first: the one that the run's leading finding is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.model import Finding
from sglang_probe.report.fold import tightest_of
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import ranks_of

TELLING: Final = {"error": "of the cause", "warning": "of the warning"}
"""Severities of a finding that say where to look, and how the rank is called then."""


class Picked(NamedTuple):
    """A rank, and why it is that one; None: no other is any better."""

    process: Process
    why: str | None = None


def pick(run: Run, findings: Sequence[Finding]) -> Picked | None:
    """Return the rank to show first; None where there is none.

    A rank that the leading finding names comes first, where it names some and not all; the tightest of them where it is
    among them. Then the run's tightest rank, the one that failed first, and the first one.
    """
    ranks = ranks_of(run)
    if not ranks:
        return None
    tightest = tightest_of(run)
    leading = next((finding for finding in findings if finding.severity in TELLING), None)
    named = [] if leading is None else [rank for rank in ranks if rank.label in leading.ranks]
    if leading is not None and 0 < len(named) < len(ranks):
        if tightest is not None and tightest in named:
            return Picked(tightest, "the tightest")
        return Picked(named[0], TELLING[leading.severity])
    if tightest is not None:
        return Picked(tightest, "the tightest")
    failed = next((rank for rank in ranks if rank.label == run.failed_label), None)
    return Picked(ranks[0]) if failed is None else Picked(failed, "failed first")
