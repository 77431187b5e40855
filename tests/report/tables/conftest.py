"""Material to make tables of: what a path holds, or runs that a test builds by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sglang_probe.collect.read import Collected, read
from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.engine import explain
from sglang_probe.report.material import Material
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run, Timeline

DATA = Path(__file__).parents[2] / "data"
H200 = DATA / "h200-x2-sglang-0.5.14"
INPUTS = {
    "ready": [H200 / "car"],
    "failed": [H200 / "lowfrac"],
    "killed": [DATA / "h200-x2-sglang-0.5.14-failures" / "sigkill.log"],
    "tenant": [DATA / "h200-x2-sglang-0.5.14-failures" / "tenant"],
    "log": [DATA / "cases" / "healthy_tp8.log"],
    "log without figures": [DATA / "cases" / "capture_oom_memory_outside_torch.log"],
    "both": [H200 / "car", H200 / "car.log"],
    "several": [H200 / "car", H200 / "lowfrac", DATA / "cases" / "healthy_tp8.log"],
}

MaterialOf = Callable[[Sequence[Path]], Material]


@pytest.fixture(scope="session")
def material_of() -> MaterialOf:
    """Return what makes the material of paths; whether a process still runs is never asked."""
    known: dict[tuple[Path, ...], Material] = {}

    def made(paths: Sequence[Path]) -> Material:
        key = tuple(paths)
        if key not in known:
            collected = read(paths)
            timeline = build(collected, alive=lambda _: None)
            where = [[str(path)] for path in paths]
            known[key] = Material(timeline, explain(timeline), collected, where)
        return known[key]

    return made


@pytest.fixture(params=INPUTS)
def material(request: pytest.FixtureRequest, material_of: MaterialOf) -> Material:
    """The material of each of the recorded inputs in turn."""
    return material_of(INPUTS[request.param])


def by_hand(*runs: Run) -> Material:
    """Return the material of runs that were built by hand."""
    timeline = Timeline(runs=runs, read=ReadReport())
    return Material(timeline, explain(timeline), Collected(runs=(), report=timeline.read))
