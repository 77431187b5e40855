"""Real servers, each started once for all tests that look at what it left.

The variable LANES names the releases whose lanes are run, with spaces between them; left out, every lane is.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lanes.build import Lane, LaneError, build_lane
from lanes.runs import Run, Served, Setting, Walked, fail_once, probe_command, serve_once, walk
from lanes.ways import WAYS
from sglang_probe.events.jsonschema import event_schema

TIMEOUT_S = 900
"""The first test of a lane may build it, and the base of all lanes first."""
STARTS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTS] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the lanes that LANES does not name; no test of a lane may hang."""
    chosen = os.environ.get("LANES", "").split()
    other = [item for item in items if chosen and _version(item) not in (None, *chosen)]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]
    if config.pluginmanager.hasplugin("timeout"):  # the agent's tests run without it too, and start no lane
        for item in items:
            if item.get_closest_marker("lane"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how long each lane took to come up."""
    if starts := config.stash[STARTS]:
        terminalreporter.section("lanes")
        for line in sorted(starts):
            terminalreporter.write_line(line)


def _version(item: pytest.Item) -> str | None:
    """The release of a test's lane; None for a test without one."""
    call = getattr(item, "callspec", None)
    return call.params.get("version") if call and item.get_closest_marker("lane") else None


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
        "run": Setting(launcher=tuple(probe_command("run", "--")), flags=("--mem-fraction-static", "0.05")),
        "nothing left": Setting((root,), flags=("--model-path", "{models}/heavy", "--mem-fraction-static", "0.001")),
        "unwritable": Setting((root,), {"SGLANG_PROBE_DIR": str(under_a_file)}),
        "without wrapt": Setting((root, broken)),
    }


@pytest.fixture(scope="session")
def served(
    lane: Callable[[str], Lane],
    settings: dict[str, Setting],
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Served:
    """Start the server of (version, tp, setting's name) once, ask it, end it; a start that failed fails every test."""

    @_once
    def run(version: str, tp: int, how: str) -> Run:
        done = serve_once(lane(version), tp, settings[how], tmp_path_factory.mktemp("server"))
        pytestconfig.stash[STARTS].append(f"{version:12} --tp {tp} {how}: answered after {done.ready_s:.1f} s")
        return done

    return run


@pytest.fixture(scope="session")
def nothing_left(
    lane: Callable[[str], Lane],
    settings: dict[str, Setting],
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Callable[[str], Run]:
    """What is left of a server of a release whose weights leave nothing to the KV cache, started once."""

    @_once
    def run(version: str) -> Run:
        begun = time.monotonic()
        done = fail_once(lane(version), 1, settings["nothing left"], tmp_path_factory.mktemp("nothing"))
        pytestconfig.stash[STARTS].append(f"{version:12} nothing left: took {time.monotonic() - begun:.1f} s")
        return done

    return run


@pytest.fixture(scope="session")
def walked(
    lane: Callable[[str], Lane],
    settings: dict[str, Setting],
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Walked:
    """Start SGLang of (version, name of a way) once, with the probe; a start that failed fails every test."""

    @_once
    def run(version: str, way: str) -> Run:
        begun = time.monotonic()
        done = walk(lane(version), WAYS[way], settings["probed"], tmp_path_factory.mktemp("way"))
        pytestconfig.stash[STARTS].append(f"{version:12} {way}: took {time.monotonic() - begun:.1f} s")
        return done

    return run


def _once(start: Callable[..., Run]) -> Callable[..., Run]:
    """Start once for the same arguments, also where the start failed."""

    @cache
    def kept(*asked: Hashable) -> Run | LaneError:
        try:
            return start(*asked)
        except LaneError as error:
            return error

    def run(*asked: Hashable) -> Run:
        result = kept(*asked)
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
def told() -> Callable[..., tuple[int, dict[str, Any]]]:
    """The exit code of a command, and what it says with `--format json`."""

    def ask(command: str, *words: object) -> tuple[int, dict[str, Any]]:
        line = probe_command(command, *map(str, words), "--format", "json")
        done = subprocess.run(line, capture_output=True, text=True)
        assert not done.stderr
        return done.returncode, json.loads(done.stdout)

    return ask


@pytest.fixture(scope="session")
def validator() -> Any:
    """Holds events to the published schema."""
    return jsonschema.Draft202012Validator(event_schema())
