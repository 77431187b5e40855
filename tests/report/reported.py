"""Recorded and made runs with what explains them: what the tests of a report's formats start from."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from sglang_probe.collect import read
from sglang_probe.explain.engine import explain
from sglang_probe.explain.model import Explanation
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run, Timeline
from tests.collect.building import Host
from tests.collect.starting import Shape, launch
from tests.timeline.any_values import VALUES, spoil
from tests.timeline.making import unknowable

DATA = Path(__file__).resolve().parents[1] / "data"
CAR = DATA / "h200-x2-sglang-0.5.14" / "car"
LOWFRAC = DATA / "h200-x2-sglang-0.5.14" / "lowfrac"
LEFT_OVER = DATA / "h200-x2-sglang-0.5.14-failures" / "leftover"
SIGKILL = DATA / "h200-x2-sglang-0.5.14-failures" / "sigkill"
HEALTHY_LOG = DATA / "cases" / "healthy_tp8.log"
RECORDINGS = (
    *sorted(path for path in DATA.glob("h200*/*") if path.is_dir()),
    *sorted(DATA.glob("h200*/*.log")),
    *sorted(DATA.glob("cases/*.log")),
)

HOSTILE = (
    'a"quote',
    "back\\slash\\",
    "</script><script>alert(1)</script>",
    "line\nof two\r\n",
    "nul\0inside",
    "half \ud83d of a pair",
    "right \u202e to left \u2066",
    "é ü 漢字 \U0001f600",
    "{a=\"b\"} 1.0 # {x}",
    "x" * 30_000,
    "",
)
"""Names from outside that have broken a format somewhere."""


class Reported(NamedTuple):
    """What a report is made of."""

    timeline: Timeline
    explanation: Explanation

    @property
    def run(self) -> Run:
        """The one run that there is."""
        (only,) = self.timeline.runs
        return only


@cache
def reported(*paths: Path) -> Reported:
    """Return what is in these paths, each read by itself, as one report of several runs."""
    found = [build(read([path]), alive=unknowable) for path in paths]
    return made(*(run for one in found for run in one.runs), like=found[0])


def made(*runs: Run, like: Timeline | None = None) -> Reported:
    """Return a report of runs that were built by hand."""
    whole = Timeline(runs=runs, read=(like or reported(CAR).timeline).read)
    return Reported(whole, explain(whole))


def spoiled(data: st.DataObject) -> Reported:
    """Return a start of three ranks in whose events any values are in any place."""
    shapes = [Shape(), Shape(fail_in="kv.profile"), Shape(stop_in="weights.load")]
    events = [json.loads(line) for writer in launch(shapes, Host(), run_id="one") for line in writer.lines()]
    for _ in range(data.draw(st.integers(1, 6))):
        spoil(data, data.draw(st.sampled_from(events)), VALUES | st.sampled_from(HOSTILE))
    content = "\n".join(json.dumps(event, separators=(",", ":")) for event in events).encode()
    timeline = build(read(["-"], io.BytesIO(content)), alive=unknowable)
    return Reported(timeline, explain(timeline))
