"""Real servers, each started once for all tests that look at what it left."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lanes.build import Lane, LaneError, build_lane
from lanes.runs import Run, Served, Setting, probe_command, serve_once
from sglang_probe.events.jsonschema import event_schema


@pytest.fixture(scope="session")
def lane() -> Callable[[str], Lane]:
    """The lane of a release, built where it is missing."""
    return cache(build_lane)


@pytest.fixture(scope="session")
def settings(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Setting]:
    """The ways in which a server is started, by name."""
    broken = tmp_path_factory.mktemp("broken")
    (broken / "wrapt.py").write_text("raise ImportError('no wrapt here', name='wrapt')\n")
    under_a_file = broken / "wrapt.py" / "runs"  # cannot be made, not even by root
    return {
        "bare": Setting(),
        "probed": Setting((root,)),
        "run": Setting(launcher=tuple(probe_command("run", "--"))),
        "unwritable": Setting((root,), {"SGLANG_PROBE_DIR": str(under_a_file)}),
        "without wrapt": Setting((root, broken)),
    }


@pytest.fixture(scope="session")
def served(
    lane: Callable[[str], Lane], settings: dict[str, Setting], tmp_path_factory: pytest.TempPathFactory
) -> Served:
    """Start the server of (version, tp, setting's name) once, ask it, end it; a start that failed fails every test."""

    @cache
    def once(version: str, tp: int, how: str) -> Run | LaneError:
        try:
            return serve_once(lane(version), tp, settings[how], tmp_path_factory.mktemp("server"))
        except LaneError as error:
            return error

    def run(version: str, tp: int, how: str) -> Run:
        result = once(version, tp, how)
        if isinstance(result, LaneError):
            raise result
        return result

    return run


@pytest.fixture(scope="session")
def timeline() -> Callable[[Path], dict[str, Any]]:
    """What `sglang-probe timeline PATH --format json` prints, of one run."""

    def read(directory: Path) -> dict[str, Any]:
        done = subprocess.run(
            probe_command("timeline", str(directory), "--format", "json"), capture_output=True, text=True
        )
        assert not done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        assert isinstance(run, dict)
        return run

    return read


@pytest.fixture(scope="session")
def validator() -> Any:
    """Holds events to the published schema."""
    return jsonschema.Draft202012Validator(event_schema())
