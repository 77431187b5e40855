"""The scenes of the story, played by fakes: what fails today, what worked yesterday, and what came between.

Each is a whole start of eight ranks with the probe in it, of the same SGLang in the same place. What changes from one
start to the next (ports, times) is written over, so that reports can be kept as golden files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from sglang_probe.testing import GIB, FakeServer, Scenario, Tenant, story
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.story import DEFAULT_RELEASE, MEM_FRACTION_STATIC, POOREST_RANK, arguments

ROOT: Final = Path(__file__).parents[2]  # not resolved: `make test` links the packages into the wheel
GOLDEN: Final = Path(__file__).parent / "golden"
WORKING: Final = 0.80
LEFT_OVER: Final = Tenant(gpu=POOREST_RANK, pid=114880, bytes=9 * GIB)
"""9 GiB: little enough for SGLang's check of the balance, and enough to leave no room at 0.80."""
SEEN_OF_IT: Final = {"name": "sglang::scheduler_TP5", "user": "ops", "parent": 1}
"""What /proc would say of it: no such process runs here."""
OLDER_S: Final = 2 * 3600 + 3 * 60
PROFILE: Final = "model_runner_kv_cache_mixin.py"
BEFORE: Final = "rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)"
AFTER: Final = "rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static) * 1.5"
"""The body of profile_max_num_token after a `git pull` that nobody read."""


class Stage:
    """One SGLang, on which each scene is played once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.site = make_site(directory / "site", DEFAULT_RELEASE)
        self._played: dict[str, Path] = {}

    def play(self, name: str) -> Path:
        """Return the directory of a scene's events."""
        if name not in self._played:
            self._played[name] = SCENES[name](self, name)
        return self._played[name]

    def start(self, name: str, fraction: float, scenario: Scenario | None = None) -> Path:
        """Start the server and wait for its end; return the directory of the run's events."""
        server = FakeServer(
            self.directory / name,
            scenario or story(),
            release=DEFAULT_RELEASE,
            arguments=arguments(fraction),
            python="python",  # by name: its place would be another on each machine
            environment={
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.site)]),
                "SGLANG_PROBE_DIR": str(self.directory / "runs"),
                "SGLANG_PROBE_RUN_ID": name,
            },
        )
        server.run()
        return self.directory / "runs" / name

    @contextmanager
    def pulled(self) -> Iterator[None]:
        """Change the body of the budget function, as a `git pull` does, and take it back."""
        (file,) = self.site.rglob(PROFILE)
        text = file.read_text(encoding="utf-8")
        assert text.count(BEFORE) == 1
        file.write_text(text.replace(BEFORE, AFTER), encoding="utf-8")
        yield
        file.write_text(text, encoding="utf-8")


def failing(stage: Stage, name: str) -> Path:
    """Today: --mem-fraction-static 0.55, "Not enough memory"."""
    return stage.start(name, MEM_FRACTION_STATIC)


def working(stage: Stage, name: str) -> Path:
    """Yesterday: the same server at 0.80 starts."""
    return stage.start(name, WORKING)


def left_over(stage: Stage, name: str) -> Path:
    """Today again, at 0.80, while a process of yesterday's server still holds memory of a GPU."""
    run = stage.start(name, WORKING, replace(story(), tenants=(LEFT_OVER,)))
    for file in run.glob("*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines()
        file.write_text("".join(map(_described, lines)), encoding="utf-8")
    return run


def changed_body(stage: Stage, name: str) -> Path:
    """The flags of yesterday on an SGLang whose budget function has another term."""
    with stage.pulled():
        return stage.start(name, WORKING)


SCENES: Final[dict[str, Callable[[Stage, str], Path]]] = {
    "failing": failing,
    "working": working,
    "left-over": left_over,
    "changed-body": changed_body,
}


def _described(line: str) -> str:
    """Say of the left-over what /proc would say, in every list of processes."""
    event: dict[str, Any] = json.loads(line)
    ours = (event.get("proc") or {}).get("start_ticks")
    for reading in (event.get("before"), event.get("after")):
        for listed in (reading or {}).get("nvml_processes") or ():
            if listed["pid"] == LEFT_OVER.pid:
                listed.update(SEEN_OF_IT, start_ticks=None if ours is None else ours - OLDER_S * 100)
    return json.dumps(event) + "\n"


def told(*words: str | Path) -> tuple[int, str]:
    """Run a command of ours as a user does, 80 columns wide; return its exit code and what it printed."""
    env = os.environ | {"COLUMNS": "80"}
    command = [sys.executable, "-m", "sglang_probe", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=ROOT)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, steady(done.stdout)


def steady(text: str) -> str:
    """Write over what differs from one start to the next, in figures of the same width."""
    steps: tuple[Callable[[str], str], ...] = (
        partial(re.compile(r"(?<=--port )\d+").sub, "PORT"),
        partial(re.compile(r"READY after [\d.]+ s").sub, "READY after N s"),
        partial(re.compile(r"(?m)(?<=^ready after, s) .*$").sub, " ..."),
        partial(re.compile(r"Read [\d,]+ events").sub, "Read N events"),
    )
    for step in steps:
        text = step(text)
    return text


def kept(name: str, text: str) -> str:
    """Return a golden file. WRITE_GOLDEN=1 writes what was told: read it before you commit it."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")
