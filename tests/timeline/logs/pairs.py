"""Recorded logs and the events of the same runs, and texts made from them by a stated change."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable
from pathlib import Path

from sglang_probe.collect import read
from sglang_probe.collect.logs.model import LogRun
from sglang_probe.timeline import build
from sglang_probe.timeline.model import LogCheck, Run, Timeline
from tests.timeline.making import unknowable

DATA = Path(__file__).resolve().parents[2] / "data"
FIRST = DATA / "h200-x2-sglang-0.5.14"
CAR = FIRST / "car.log"
LOGS = tuple(sorted(DATA.glob("h200-*/*.log")))
"""Each beside the directory of its run's events."""
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
Change = Callable[[str], str]


def name_of(path: Path) -> str:
    """Return how a test calls a recording."""
    return f"{path.parent.name.removeprefix('h200-x2-sglang-')}/{path.stem}"


@functools.cache
def log_of(path: Path) -> LogRun:
    """Return the start that a log has."""
    (log,) = read([str(path)]).logs
    return log


@functools.cache
def events_of(path: Path) -> Run:
    """Return the run of the events beside a log."""
    (run,) = build(read([str(path.with_suffix(""))]), alive=unknowable).runs
    return run


@functools.cache
def told_of(path: Path) -> Run:
    """Return the run that a log alone tells of."""
    (run,) = build(read([str(path)]), alive=unknowable).runs
    return run


def timeline_of(*paths: Path) -> Timeline:
    """Return the timeline of logs and events that are given together."""
    return build(read([str(path) for path in paths]), alive=unknowable)


@functools.cache
def both_of(path: Path) -> Run:
    """Return the run of a log and of the events beside it."""
    (run,) = timeline_of(path, path.with_suffix("")).runs
    return run


def check_of(run: Run) -> LogCheck:
    """Return the check of a run's log, which has to be there."""
    assert run.log_check is not None
    return run.log_check


def changed(folder: Path, path: Path, *changes: Change) -> Path:
    """Write a log with changes."""
    text = path.read_text()
    for change in changes:
        text = change(text)
    made = folder / path.name
    made.write_text(text)
    return made


def replaced(old: str, new: str) -> Change:
    """Replace a piece of a log that has to be in it."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def later(seconds: int) -> Change:
    """Set the clock of a log's server forward."""

    def move(match: re.Match[str]) -> str:
        return f"[{dt.datetime.fromisoformat(match[1]) + dt.timedelta(seconds=seconds)}"

    return lambda text: STAMP.sub(move, text)


def undated(text: str) -> str:
    """Leave the time of day of each stamp alone."""
    return STAMP.sub(lambda match: f"[{match[1].partition(' ')[2]}", text)


def without_arguments(text: str) -> str:
    """Leave out the line of the server's arguments."""
    return "".join(line for line in text.splitlines(keepends=True) if "server_args=" not in line)


def of_rank(label: str, *, kept: bool) -> Change:
    """Keep the lines of one rank alone, or all but those."""
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True) if (f" {label}] " in line) == kept or "server_args=" in line
    )
