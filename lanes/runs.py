"""One real start with the probe: what the server said, what it printed, what the probe left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lanes.build import Lane, LaneError
from lanes.server import LAUNCH_SERVER, Answer, Server, wait_until
from lanes.ways import Way

ROOT: Final = Path(__file__).parents[1]
PROMPTS: Final = ("Hello", "The memory of a GPU", "0123456789")
PHASE_WITHIN_S: Final = 120.0
ENDS_WITHIN_S: Final = 240.0
FAILS_WITHIN_S: Final = 120.0
COMMAND: Final = "import sys; sys.path.insert(0, {root!r}); from sglang_probe.cli.main import main; sys.exit(main())"

Event = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """How a server is started: PYTHONPATH, variables beside a clean environment, and what stands before the command."""

    pythonpath: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    command: tuple[str, ...] = LAUNCH_SERVER
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """What is left of a server that is gone."""

    pid: int
    ready_s: float
    """How long the start took until the server answered; 0 where it never did."""
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

    def events(self) -> list[Event]:
        """Every event of every file, files in order; raise ValueError for a line that is none."""
        return [json.loads(line) for path in self.files for line in path.read_text(encoding="utf-8").splitlines()]

    def ranks(self) -> list[list[Event]]:
        """The events of each rank, ranks in no order."""
        by_process: dict[int, list[Event]] = defaultdict(list)
        for event in self.events():
            by_process[event["pid"]].append(event)
        return [events for events in by_process.values() if any(event["role"] for event in events)]

    def said(self) -> list[str]:
        """What the probe said on stderr."""
        return [line for line in self.stderr.splitlines() if "sglang-probe: " in line]


Served = Callable[[str, int, str], Run]
"""What is left of the server of (version, tensor parallel size, name of a setting)."""
Walked = Callable[[str, str], Run]
"""What is left of a start of (version, name of a way), with the probe."""


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


def walk(lane: Lane, way: Way, setting: Setting, folder: Path) -> Run:
    """Start SGLang by a way, as far as the way goes on a CPU, and end it; what it leaves lies in `folder`."""
    command, flags = (tuple(words.split()) for words in (way.command, way.flags))
    setting = replace(setting, command=command, flags=flags, env={**setting.env, **way.env})
    if way.until == "served":
        return serve_once(lane, 1, setting, folder)
    server, runs = _server(lane, 1, setting, folder)
    server.start()
    try:
        if way.until == "ended":
            _wait_ended(server)
        else:
            _wait_started(server, runs, len(way.ranks))
    finally:
        server.kill()
    return _what_is_left(server, runs, (), {})


def fail_once(lane: Lane, tp: int, setting: Setting, folder: Path) -> Run:
    """Start a server that cannot come up and wait until it is gone; raise LaneError where it came up."""
    server, runs = _server(lane, tp, setting, folder)
    server.start()
    try:
        if not wait_until(server.ended, FAILS_WITHIN_S):
            raise LaneError(f"did not fail within {FAILS_WITHIN_S:.0f} s\n{server.tail()}")
    finally:
        server.kill()
    return _what_is_left(server, runs, (), {})


def lose_a_rank(lane: Lane, setting: Setting, folder: Path, phase: str, rank: int) -> tuple[Run, int]:
    """Start the server at TP 2, SIGKILL one rank as soon as it begins `phase`, and wait until the rest has ended.

    Returns what is left, and the pid of that rank.
    """
    server, runs = _server(lane, 2, setting, folder)
    server.start()
    try:
        if not wait_until(lambda: server.ended() or bool(_in_phase(runs, phase, rank)), PHASE_WITHIN_S, every_s=0.002):
            raise LaneError(f"rank {rank} did not come to {phase}\n{server.tail()}")
        (pid,) = _in_phase(runs, phase, rank)
        os.kill(pid, signal.SIGKILL)
        if not wait_until(server.ended, ENDS_WITHIN_S):
            raise LaneError(f"the server outlives its rank {rank}\n{server.tail()}")
    finally:
        server.kill()
    return _what_is_left(server, runs, (), {}), pid


def _in_phase(runs: Path, phase: str, rank: int) -> set[int]:
    """Return the pid of a rank that has begun a phase; nothing before that."""
    begun = [line for line in _whole_lines(runs) if f'"sglang.memory.{phase}.begin"' in line]
    return {event["pid"] for event in map(json.loads, begun) if event["rank"]["tp"]["rank"] == rank}


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


def _wait_ended(server: Server) -> None:
    if not wait_until(server.ended, ENDS_WITHIN_S):
        raise LaneError(f"did not end within {ENDS_WITHIN_S:.0f} s\n{server.tail()}")
    if server.returncode:
        raise LaneError(f"ended with {server.returncode}\n{server.tail()}")


def _wait_started(server: Server, runs: Path, ranks: int) -> None:
    """Wait until every rank has told that it is up."""

    def up() -> bool:
        ends = [line for line in _whole_lines(runs) if '"sglang.memory.scheduler.init.end"' in line]
        return server.ended() or ranks == len(ends)

    if not wait_until(up, ENDS_WITHIN_S):
        raise LaneError(f"not every rank was up within {ENDS_WITHIN_S:.0f} s\n{server.tail()}")


def _server(lane: Lane, tp: int, setting: Setting, folder: Path) -> tuple[Server, Path]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SGLANG_PROBE"))}
    env |= {"SGLANG_PROBE_DIR": str(folder / "runs"), **setting.env}
    if setting.pythonpath:
        env["PYTHONPATH"] = os.pathsep.join(map(str, setting.pythonpath))
    logs = folder / "logs"
    server = Server(
        lane, tp=tp, env=env, launcher=setting.launcher, command=setting.command, extra=setting.flags, logs=logs
    )
    return server, Path(env["SGLANG_PROBE_DIR"])


def _whole_lines(runs: Path) -> set[str]:
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in runs.glob("*/*.jsonl"))
    return {line for text in texts for line in text.rpartition("\n")[0].split("\n") if line}


def _what_is_left(server: Server, runs: Path, answers: tuple[Answer, ...], info: Mapping[str, Any]) -> Run:
    stdout, stderr = (path.read_text(errors="replace") for path in (server.stdout, server.stderr))
    return Run(server.pid, server.ready_s, answers, info, stdout, stderr, runs)
