"""Runs as one JSON trace: `report -o run.trace.json`.

All runs of a report begin at time 0, so that they can be laid beside each other.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from sglang_probe import __version__
from sglang_probe.explain.model import Explanation
from sglang_probe.report.material import Material
from sglang_probe.report.names import clipped, run_names
from sglang_probe.report.plain import printable_json
from sglang_probe.report.series import RunClock
from sglang_probe.report.trace.events import Event
from sglang_probe.report.trace.run import RunTrace
from sglang_probe.report.trace.seats import Numbers
from sglang_probe.timeline.model import Run, Timeline

PER_RUN: Final = 1_000_000
"""More than a run has processes: those of a run stand together."""
ORDER: Final = {"M": 0, "X": 1, "s": 2, "f": 2, "C": 3, "i": 4}
"""Of events at one time: a slice comes before the arrow that is bound to it."""


def write(material: Material, path: Path) -> None:
    """Write the trace of every run to `path`; OSError where the disk refuses."""
    document = trace(material.timeline, material.explanation, material.now)
    path.write_text(printable_json(msgspec.json.encode(document).decode()) + "\n", encoding="utf-8")


def trace(timeline: Timeline, explanation: Explanation, now: datetime | None = None) -> dict[str, Any]:
    """Return the trace as what JSON can say; `now` is until when a step that still runs is drawn."""
    numbers = Numbers(timeline.runs)
    several = len(timeline.runs) > 1
    events: list[Event] = []
    told: dict[str, str] = {}
    runs = zip(timeline.runs, run_names(timeline.runs), explanation.runs, strict=True)
    for position, (run, name, findings) in enumerate(runs):
        drawn = RunTrace(run, name, numbers, now)
        events += drawn.events(findings, f"{name}: " if several else "", position * PER_RUN)
        told[name] = _zero(run, drawn.clock)
    events.sort(key=lambda event: (event.get("ts", -1.0), ORDER[event["ph"]]))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"made by": f"SGLang Probe {__version__}", **told},
    }


def _zero(run: Run, clock: RunClock) -> str:
    began = run.local_started if run.started is None else run.started
    untimed = sum(clock.begin_s(process, step) is None for process in run.processes for step in process.steps)
    left_out = f"; steps without a time, not drawn: {untimed:,}" if untimed else ""
    return f"time 0 is {clipped(began or 'unknown')}{left_out}"
