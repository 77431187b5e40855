"""A server that is killed leaves everything that it began."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lanes.build import Lane
from lanes.runs import Run, Setting, kill_in_phase

LONG_PHASES = ("dist.init", "weights.load")
PHASES = (*LONG_PHASES, "kv.pool", "attention.init", "graph.capture")

pytestmark = [
    pytest.mark.lane,
    pytest.mark.parametrize("version", ["0.5.9", "0.5.14"]),
    pytest.mark.parametrize("phase", PHASES),
]
Killed = Callable[[str, str], tuple[Run, set[str]]]


@pytest.fixture(scope="session")
def killed(
    lane: Callable[[str], Lane], settings: dict[str, Setting], tmp_path_factory: pytest.TempPathFactory
) -> Killed:
    """What is left of a server at TP 2 that got SIGKILL when (version, phase) began, and the lines seen before that."""

    @cache
    def kill(version: str, phase: str) -> tuple[Run, set[str]]:
        return kill_in_phase(lane(version), 2, settings["probed"], tmp_path_factory.mktemp("killed"), phase)

    return kill


def whole_lines(path: Path) -> list[str]:
    """The lines of a file but for a last one that the kill has torn."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_sigkill_in_a_phase_leaves_every_line_that_was_begun(version: str, phase: str, killed: Killed) -> None:
    run, seen = killed(version, phase)
    left = [line for path in run.files for line in whole_lines(path)]
    assert any(json.loads(line)["event"] == f"sglang.memory.{phase}.begin" for line in left)
    assert set() == seen - set(left)


def test_sigkill_in_a_phase_leaves_a_run_that_died_there(
    version: str, phase: str, killed: Killed, timeline: Callable[[Path], dict[str, Any]]
) -> None:
    run, _ = killed(version, phase)
    read = timeline(run.directory)
    steps = [step for process in read["processes"] for step in process["steps"]]
    assert phase in {step["phase"] for step in steps}
    roots = {step["state"] for step in steps if step["phase"] == "scheduler.init"}
    # On a CPU the late phases take a millisecond: a rank may have come up before the signal came down.
    assert roots <= ({"died"} if phase in LONG_PHASES else {"died", "ok"})
    assert read["outcome"] == ("ready" if roots == {"ok"} else "died")
