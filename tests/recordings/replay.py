"""The recordings of failures, replayed once a session: what our own commands say of them, and SGLang's log beside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data" / "h200-x2-sglang-0.5.14-failures"
RUNS = tuple(sorted(path.stem for path in DATA.glob("*.json")))
GIB = 1 << 30
MIB = 1 << 20
WIDTH = "200"
"""Columns of a printed report: a sentence of it is one line."""

Json = dict[str, Any]


def _timeline(run: str, *words: str) -> str:
    command = [sys.executable, "-m", "sglang_probe", "timeline", str(DATA / run), *words]
    env = os.environ | {"COLUMNS": WIDTH}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def timeline(run: str) -> Json:
    """Return the one run that is in a recording."""
    (found,) = json.loads(_timeline(run, "--format", "json"))["runs"]
    return dict(found)


@cache
def report(run: str) -> str:
    """Return what is printed of it, each run of blanks as one."""
    return re.sub(r"\s+", " ", _timeline(run))


@cache
def log(run: str) -> str:
    """Return SGLang's own log of the same run."""
    return (DATA / f"{run}.log").read_text(encoding="utf-8")


@cache
def scenario(run: str) -> Json:
    """Return what was done on purpose: commands, tenants, who was killed."""
    return dict(json.loads((DATA / f"{run}.json").read_text(encoding="utf-8")))


def ranks(run: str) -> list[Json]:
    """Return the schedulers, TP0 first."""
    found = [process for process in timeline(run)["processes"] if process["role"] == "scheduler"]
    assert [process["label"] for process in found] == ["TP0", "TP1"]
    return found


def rank(run: str, label: str) -> Json:
    """Return one of them."""
    return next(process for process in ranks(run) if process["label"] == label)


def step(process: Json, phase: str) -> Json:
    """Return the innermost step of a phase, which is the last to begin."""
    return dict([step for step in process["steps"] if step["phase"] == phase][-1])


@cache
def _lines(run: str, pid: int) -> tuple[Json, ...]:
    (file,) = (DATA / run).glob(f"*.{pid}.*.jsonl")
    return tuple(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())


def events(run: str, process: Json) -> tuple[Json, ...]:
    """Return the events of a process as they were emitted."""
    return _lines(run, process["pid"])


def readings(run: str, process: Json) -> list[Json]:
    """Return every reading of a process, in order."""
    return [reading for event in events(run, process) for reading in (event["before"], event["after"]) if reading]


def neighbours(process: Json) -> list[Json]:
    """Return the other processes that its device's list names."""
    return list(process["neighbours"])


def figures(pattern: str, text: str) -> list[float]:
    """Return the numbers of the pattern's groups; the pattern must be there."""
    match = re.search(pattern, text)
    assert match, pattern
    return [float(number) for number in match.groups()]
