"""The JSON of a timeline: DESIGN's keys first, then what is useful beside them.

The readings stay out: what a step says of the device is in its `*_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sglang_probe.timeline.model import Process, Run, Timeline

_STEP: Final = dict.fromkeys(("before", "after", "mono_ns"), msgspec.UNSET)
_SAMPLE: Final = dict.fromkeys(("after", "seq"), msgspec.UNSET)
"""What only the making of a timeline needs: msgspec leaves out what is UNSET."""


class OneByOne:
    """The processes of a run as JSON shows them, each made when it is its turn: of 10,000, all at once take a GiB."""

    def __init__(self, processes: tuple[Process, ...]) -> None:
        self._processes = processes

    def __iter__(self) -> Iterator[Process]:
        return map(_process, self._processes)


def shown(timeline: Timeline) -> Timeline:
    """Return the timeline for `report.document.json_pieces`, which takes its processes OneByOne."""
    return msgspec.structs.replace(timeline, runs=tuple(map(_run, timeline.runs)))


def to_json(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as plain objects that any JSON writer takes; what is unknown is null."""
    shaped: dict[str, Any] = msgspec.to_builtins(shown(timeline), enc_hook=list)
    return shaped


def _run(run: Run) -> Run:
    return msgspec.structs.replace(run, processes=OneByOne(run.processes))


def _process(process: Process) -> Process:
    return msgspec.structs.replace(
        process,
        steps=tuple([msgspec.structs.replace(step, **_STEP) for step in process.steps]),
        samples=tuple([msgspec.structs.replace(sample, **_SAMPLE) for sample in process.samples]),
    )
