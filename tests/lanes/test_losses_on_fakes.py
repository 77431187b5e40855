"""Everything that can keep the probe from writing, one at a time, on a fake server of two ranks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.testing import FakeServer, Scenario

pytestmark = pytest.mark.parametrize("release", ["0.5.9", "0.5.14"])

Serve = Callable[..., list[str]]
IN_HOME = ("sh", "-c", 'cd "$HOME" && exec "$@"', "sh")


@pytest.fixture
def serve(root: Path, release: str, tmp_path: Path) -> Serve:
    """Start a fake server with the probe, wait until it serves, end it; return what the probe said on its way."""

    def run(environment: Mapping[str, str], *, before: Sequence[Path] = (), prefix: Sequence[str] = ()) -> list[str]:
        server = FakeServer(
            tmp_path / "server",
            Scenario(gpus=2),
            release=release,
            arguments=["--tp", "2"],
            pythonpath=[root, *before],
            environment=environment,
            prefix=prefix,
        )
        with server:
            server.wait_until_ready()
        return [line for line in server.log.splitlines() if "sglang-probe: " in line]

    return run


@pytest.fixture
def mount() -> Iterator[Callable[[Path, str], None]]:
    """Mount a file system in memory with these options at a path, until the test ends; skip where that is forbidden."""
    mounted: list[Path] = []

    def make(where: Path, options: str) -> None:
        where.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this user may not mount: {done.stderr.strip()}")
        mounted.append(where)

    yield make
    for where in mounted:
        subprocess.run(["umount", "--lazy", where], check=True)  # a killed server may still be ending in it


@pytest.fixture
def without(tmp_path: Path) -> Callable[[str], Path]:
    """A directory that hides an installed module, as if it were missing."""

    def hide(module: str) -> Path:
        directory = tmp_path / "hides"
        directory.mkdir()
        (directory / f"{module}.py").write_text(f"raise ImportError('No module named {module}', name={module!r})\n")
        return directory

    return hide


def events_in(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in directory.glob("*/*.jsonl") for line in path.read_text().splitlines()]


def test_a_directory_that_cannot_be_made_is_said_once_and_the_server_serves(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "runs"
    (said,) = serve({"SGLANG_PROBE_DIR": str(directory)})
    assert str(directory) in said


def test_a_read_only_home_as_the_working_directory_is_said_once_and_the_server_serves(
    serve: Serve, tmp_path: Path, mount: Callable[[Path, str], None]
) -> None:
    home = tmp_path / "home"
    mount(home, "ro,size=64k")
    (said,) = serve({"HOME": str(home)}, prefix=IN_HOME)
    assert str(home) in said
    assert "SGLANG_PROBE_DIR" in said


def test_a_read_only_home_costs_nothing_where_the_events_go_elsewhere(
    serve: Serve, tmp_path: Path, mount: Callable[[Path, str], None]
) -> None:
    home, runs = tmp_path / "home", tmp_path / "runs"
    mount(home, "ro,size=64k")
    assert [] == serve({"HOME": str(home), "SGLANG_PROBE_DIR": str(runs)}, prefix=IN_HOME)
    assert events_in(runs)


def test_a_full_disk_is_said_once_by_each_process_that_loses_events_and_the_server_serves(
    serve: Serve, tmp_path: Path, mount: Callable[[Path, str], None]
) -> None:
    runs = tmp_path / "runs"
    mount(runs, "size=64k")
    said = serve({"SGLANG_PROBE_DIR": str(runs)})
    assert 1 <= len(said) <= len(list(runs.glob("*/*.jsonl")))
    assert {True} == {str(runs) in line and "free some space" in line for line in said}


@pytest.mark.parametrize("module", ["wrapt", "structlog"])
def test_a_missing_requirement_is_said_once_and_the_server_serves(
    module: str, serve: Serve, tmp_path: Path, without: Callable[[str], Path]
) -> None:
    (said,) = serve({"SGLANG_PROBE_DIR": str(tmp_path / "runs")}, before=[without(module)])
    assert module in said
    assert "pip install" in said


def test_a_missing_orjson_loses_no_event_so_nothing_is_said(
    serve: Serve, tmp_path: Path, without: Callable[[str], Path], validator: Any
) -> None:
    runs = tmp_path / "runs"
    assert [] == serve({"SGLANG_PROBE_DIR": str(runs)}, before=[without("orjson")])
    events = events_in(runs)
    assert 2 == [event["event"] for event in events].count("sglang.memory.scheduler.init.end")
    assert [] == [error.message for event in events for error in validator.iter_errors(event)]
