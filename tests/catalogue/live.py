"""What the agent's own hooks find in modules that are really imported, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from sglang_probe.catalogue.resolve import Row
from sglang_probe.catalogue.targets import Target

ROOT = Path(__file__).parents[2]  # not resolved: in the tree of `make test` the package is a link
Answers = dict[str, list[str | None]]
"""By the target's name, its state and fingerprint; a target whose module cannot be imported is not there."""
ASK = """
import contextlib, importlib, json, sys
sys.path[:0] = sys.argv[1:]
from sglang_probe.agent import hooks
from sglang_probe.catalogue.targets import Target

class Health:
    guard = contextlib.nullcontext
    def degrade(self, *what):
        pass

class Agent:
    health = Health()
    def report_target(self, target, state, reason, fingerprint):
        found[target.name] = [state, fingerprint]

found, by_module = {}, {}
for row in json.load(sys.stdin):
    by_module.setdefault(row["module"], []).append(Target(**row))
hooks.targets_of = by_module.__getitem__
for module in by_module:
    with contextlib.redirect_stdout(sys.stderr):
        try:
            loaded = importlib.import_module(module)
        except Exception:  # it needs what this machine has not
            continue
    hooks.Hooks(Agent()).install(loaded)
print(json.dumps(found))
"""


def answers(python: Sequence[str | Path], targets: Iterable[Target], *paths: Path) -> Answers:
    """Ask in a process of that Python, with `paths` before its own; PYTHONPATH would arm the probe itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, python), "-W", "ignore", "-c", ASK, *map(str, [ROOT, *paths])],
        input=json.dumps([asdict(target) for target in targets]),
        env={**environment, "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: Answers = json.loads(done.stdout.splitlines()[-1])
    return found


def as_the_agent_says(row: Row) -> str:
    """The agent does not know which bodies are known: it hooks both."""
    return "applied" if row.state == "unknown body" else row.state
