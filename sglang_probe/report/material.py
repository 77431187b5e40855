"""What a report is made of: the timeline, what explains it, and the events that both come from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sglang_probe.collect.read import Collected
from sglang_probe.explain.model import Explanation
from sglang_probe.timeline.model import Timeline


class Material(NamedTuple):
    """Everything that a renderer may draw on; the same material gives the same report."""

    timeline: Timeline
    explanation: Explanation
    collected: Collected
    """The records, for a table of events."""
    where: Sequence[Sequence[str]] = ()
    """Run by run, where its files are."""
    now: datetime | None = None
    """The time (UTC, with its zone) until which a start that is still running is silent."""
