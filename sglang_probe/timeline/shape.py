"""The JSON of a timeline: DESIGN's keys first, then what is useful beside them.

The readings stay out: what a step says of the device is in its `*_bytes`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sglang_probe.timeline.model import Process, Run, Timeline

_STEP: Final = dict.fromkeys(("before", "after", "mono_ns"), msgspec.UNSET)
_SAMPLE: Final = dict.fromkeys(("after", "seq"), msgspec.UNSET)
"""What only the making of a timeline needs: msgspec leaves out what is UNSET."""


def shown(timeline: Timeline) -> Timeline:
    """Return the timeline to be encoded by msgspec as it is: no millions of plain objects between it and its JSON."""
    return msgspec.structs.replace(timeline, runs=tuple(map(_run, timeline.runs)))


def to_json(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as plain objects that any JSON writer takes; what is unknown is null."""
    shaped: dict[str, Any] = msgspec.to_builtins(shown(timeline))
    return shaped


def _run(run: Run) -> Run:
    return msgspec.structs.replace(run, processes=tuple(map(_process, run.processes)))


def _process(process: Process) -> Process:
    return msgspec.structs.replace(
        process,
        steps=tuple([msgspec.structs.replace(step, **_STEP) for step in process.steps]),
        samples=tuple([msgspec.structs.replace(sample, **_SAMPLE) for sample in process.samples]),
    )
