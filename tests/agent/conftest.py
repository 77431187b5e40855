"""For each test: an agent that hooks a module made up on the spot, or a Python with a made-up sglang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sglang_probe.agent import hooks
from sglang_probe.agent.core import Agent
from sglang_probe.agent.runs import Run as ProbeRun
from sglang_probe.catalogue.targets import Target

MODULE = "sglang.srt.made_up"
ROOT = Path(__file__).resolve().parents[2]
DETOKENIZER = """
class DetokenizerManager:
    def __init__(self, server_args=None, port_args=None):
        self.built = True

def run_detokenizer_process(answer):
    answer.send(DetokenizerManager().built)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _clean_environment() -> Iterator[None]:
    """Begin without the probe's variables, and take away what an agent exports: other tests start servers."""
    before = {name: value for name, value in os.environ.items() if name.startswith("SGLANG_PROBE")}
    for name in before:
        del os.environ[name]
    yield
    for name in [name for name in os.environ if name.startswith("SGLANG_PROBE")]:
        del os.environ[name]
    os.environ.update(before)


class Probe:
    """An agent, and what it has written so far."""

    def __init__(self, run: ProbeRun, patch: pytest.MonkeyPatch) -> None:
        self.agent = Agent(run)
        self._patch = patch

    def hook(self, targets: Sequence[Target], **contents: Any) -> ModuleType:
        """Hook `targets` in a new module with these contents."""
        module = ModuleType(MODULE)
        vars(module).update(contents)
        self._patch.setattr(hooks, "targets_of", lambda _: list(targets))
        self.agent.hook(module)
        return module

    def events(self, path: str | None = None) -> list[dict[str, Any]]:
        """Every event of this process (or of another file), in order."""
        text = Path(path or self.agent.writer.path()).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def memory(self) -> list[dict[str, Any]]:
        """The memory events alone."""
        return [event for event in self.events() if event["role"] is not None]

    def states(self) -> dict[str, str]:
        """State of each target by its path, as reported last."""
        reports = (event["attributes"] for event in self.events() if event["event"] == "sglang.probe.target")
        return {report["target"].partition(":")[2]: report["state"] for report in reports}


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    return Probe(ProbeRun("run", True, str(tmp_path / "runs")), monkeypatch)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """Make a row of the table for the made-up module."""
    from sglang_probe.agent import readers
    from sglang_probe.agent.calls import Reader

    silent = Reader()

    def make(path: str, reader: Reader | str = silent, **row: Any) -> Target:
        if isinstance(reader, Reader):
            name = f"test.{id(reader)}"
            monkeypatch.setitem(readers._KNOWN, name, reader)
        else:
            name = reader
        return Target(path=path, **{"role": "weights.load", "module": MODULE, "reader": name, "why": "a test", **row})

    return make


def write_module(tmp_path: Path, name: str, text: str) -> Path:
    """Put a module (and the packages around it) into the made-up site."""
    *packages, last = name.split(".")
    folder = tmp_path / "site"
    for package in packages:
        folder /= package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(text)
    return folder / f"{last}.py"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run code in a Python of its own, with the probe on PYTHONPATH and an sglang of one target module."""
    write_module(tmp_path, "sglang.srt.managers.detokenizer_manager", DETOKENIZER)
    write_module(tmp_path, "sglang.srt.managers.other", "VALUE = 1")

    def start(
        code: str, *, block: tuple[str, ...] = (), flags: tuple[str, ...] = (), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        blocked = tmp_path / "blocked"
        blocked.mkdir(exist_ok=True)
        for name in block:
            (blocked / f"{name}.py").write_text(f"raise ImportError('no {name} here', name={name!r})")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
        path = os.pathsep.join(str(entry) for entry in (ROOT, blocked, tmp_path / "site"))
        given = {"PYTHONPATH": path, "SGLANG_PROBE_DIR": str(tmp_path / "runs"), **environ}
        script = tmp_path / "script.py"
        script.write_text(code)
        return subprocess.run(
            [sys.executable, *flags, str(script)],
            env={**kept, **given},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


def events(tmp_path: Path) -> list[dict[str, Any]]:
    """Every event that a `run` has left."""
    files = sorted((tmp_path / "runs").glob("*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def reports(tmp_path: Path, path: str) -> list[tuple[str, str | None]]:
    """State and reason of the target with this path, as often as it was reported."""
    told = (event["attributes"] for event in events(tmp_path) if event["event"] == "sglang.probe.target")
    return [(report["state"], report["reason"]) for report in told if report["target"].endswith(f":{path}")]
