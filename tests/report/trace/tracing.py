"""From a report to its trace, checked, and the times of steps that are built by hand."""

from __future__ import annotations

import msgspec

from sglang_probe.report.plain import printable_json
from sglang_probe.report.trace.document import trace
from tests.report.reported import Reported
from tests.report.trace.checker import Trace


def traced(report: Reported) -> Trace:
    """Return the trace of a report, as it would be written."""
    document = trace(report.timeline, report.explanation)
    return Trace(printable_json(msgspec.json.encode(document).decode()))


def at(second: int) -> dict[str, str]:
    return {"ts": stamp(second)}


def stamp(second: int) -> str:
    return f"2026-11-29T18:45:{second:02}.000000001Z"
