"""One real start with the probe: what the server said, what it printed, what the probe left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lanes.build import Lane
from lanes.server import Answer, Server, wait_until

ROOT: Final = Path(__file__).parents[1]
PROMPTS: Final = ("Hello", "The memory of a GPU", "0123456789")
PHASE_WITHIN_S: Final = 120.0
COMMAND: Final = "import sys; sys.path.insert(0, {root!r}); from sglang_probe.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Setting:
    """How a server is started: PYTHONPATH, variables beside a clean environment, and what stands before the command."""

    pythonpath: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """What is left of a server that is gone."""

    pid: int
    answers: tuple[Answer, ...]
    info: Mapping[str, Any]
    stdout: str
    stderr: str
    directory: Path
    """The directory of runs."""

    @property
    def files(self) -> list[Path]:
        """Every file of the probe."""
        return sorted(self.directory.glob("*/*.jsonl"))

    def events(self) -> list[dict[str, Any]]:
        """Every event of every file, files in order; raise ValueError for a line that is none."""
        return [json.loads(line) for path in self.files for line in path.read_text(encoding="utf-8").splitlines()]

    def said(self) -> list[str]:
        """What the probe said on stderr."""
        return [line for line in self.stderr.splitlines() if "sglang-probe: " in line]


Served = Callable[[str, int, str], Run]
"""What is left of the server of (version, tensor parallel size, name of a setting)."""


def probe_command(*arguments: str) -> list[str]:
    """Return the words that run `sglang-probe ARGUMENTS` from this tree, installed or not."""
    return [sys.executable, "-c", COMMAND.format(root=str(ROOT)), *arguments]


def serve_once(lane: Lane, tp: int, setting: Setting, folder: Path) -> Run:
    """Start the server, ask it PROMPTS, end it; what it leaves lies in `folder`."""
    server, runs = _server(lane, tp, setting, folder)
    with server:
        answers = tuple(server.generate(prompt) for prompt in PROMPTS)
        info = server.info()
        server.kill()  # every line is on disk by now, and a graceful stop takes 4 s more
    return _what_is_left(server, runs, answers, info)


def kill_in_phase(lane: Lane, tp: int, setting: Setting, folder: Path, phase: str) -> tuple[Run, set[str]]:
    """Start the server and SIGKILL all of it as soon as a `begin` of `phase` is seen.

    Returns what is left, and the whole lines that were in its files before the kill.
    """
    server, runs = _server(lane, tp, setting, folder)
    begun = f'"sglang.memory.{phase}.begin"'
    seen: set[str] = set()

    def entered() -> bool:
        seen.update(_whole_lines(runs))
        return server.ended() or any(begun in line for line in seen)

    server.start()
    try:
        wait_until(entered, PHASE_WITHIN_S, every_s=0.002)
    finally:
        server.kill()
    return _what_is_left(server, runs, (), {}), seen


def _server(lane: Lane, tp: int, setting: Setting, folder: Path) -> tuple[Server, Path]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SGLANG_PROBE"))}
    env |= {"SGLANG_PROBE_DIR": str(folder / "runs"), **setting.env}
    if setting.pythonpath:
        env["PYTHONPATH"] = os.pathsep.join(map(str, setting.pythonpath))
    server = Server(lane, tp=tp, env=env, launcher=setting.launcher, logs=folder / "logs")
    return server, Path(env["SGLANG_PROBE_DIR"])


def _whole_lines(runs: Path) -> set[str]:
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in runs.glob("*/*.jsonl"))
    return {line for text in texts for line in text.rpartition("\n")[0].split("\n") if line}


def _what_is_left(server: Server, runs: Path, answers: tuple[Answer, ...], info: Mapping[str, Any]) -> Run:
    stdout, stderr = (path.read_text(errors="replace") for path in (server.stdout, server.stderr))
    return Run(server.pid, answers, info, stdout, stderr, runs)
