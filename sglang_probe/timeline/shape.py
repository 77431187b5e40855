"""The JSON of a timeline: DESIGN's keys first, then what is useful beside them.

The readings stay out: what a step says of the device is in its `*_bytes`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_probe.timeline.model import Timeline

_INTERNAL = {"steps": ("before", "after", "mono_ns"), "samples": ("after", "seq")}


def to_json(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as plain objects that any JSON writer takes; what is unknown is null."""
    shaped: dict[str, Any] = msgspec.to_builtins(timeline)
    for run in shaped["runs"]:
        for process in run["processes"]:
            for kind, internal in _INTERNAL.items():
                for one in process[kind]:
                    for key in internal:
                        del one[key]
    return shaped
