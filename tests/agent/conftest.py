"""An agent of its own for each test, whose hooks go into a module made up on the spot."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sglang_probe.agent import hooks
from sglang_probe.agent.core import Agent
from sglang_probe.agent.runs import Run
from sglang_probe.agent.targets import Target

MODULE = "sglang.srt.made_up"


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

    def __init__(self, run: Run, patch: pytest.MonkeyPatch) -> None:
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
    return Probe(Run("run", True, str(tmp_path / "runs")), monkeypatch)


@pytest.fixture
def target() -> Callable[..., Target]:
    """Make a row of the table for the made-up module."""
    from sglang_probe.agent.calls import Reader

    def make(path: str, **row: Any) -> Target:
        row = {"role": "weights.load", "module": MODULE, "reader": Reader(), "why": "a test", **row}
        return Target(path=path, **row)

    return make
