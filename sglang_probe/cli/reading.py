"""What every command that reports reads: the paths that were given, or the default directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.paths import is_there
from sglang_probe.cli.progress import ReadingBar
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import Collected, CollectedRun, read
from sglang_probe.events.variables import DEFAULT_DIRECTORY, DIRECTORY
from sglang_probe.timeline.model import Run


def collect(paths: Sequence[str]) -> Collected:
    """Read the paths, or where there is none the default directory; with a bar on stderr where it takes long.

    Raises:
        BadUse: nothing is there, or it cannot be read.
    """
    try:
        with ReadingBar() as bar:
            return read(list(paths) or [_default()], None if sys.stdin is None else sys.stdin.buffer, watch=bar)
    except InputError as error:
        raise BadUse(str(error)) from error


def refuse_unused(assumed: Mapping[str, Any], collected: Iterable[Collected]) -> None:
    """Check that what is assumed has a log to be assumed of.

    Raises:
        BadUse: there is no log.
    """
    if assumed and not any(one.logs for one in collected):
        raise BadUse(
            f"--assume {next(iter(assumed))} is for plain logs, and what was read holds events alone,"
            " which say what the server was given; leave it out"
        )


def how_to_name_one(runs: Sequence[Run], path: str) -> str:
    """Say how to name one of the several runs that a path holds."""
    if all(run.source == "log" for run in runs):
        return f"name it: {path}#2 is the second start in a log, {path}#NAME what the container NAME wrote"
    return "give the directory of one run, or the files of one launch"


def where_of(collected: Collected) -> list[list[str]]:
    """Return, run by run as a timeline has them, where the files are."""
    return [*(_places(one) for one in collected.runs), *(list(log.files) for log in collected.logs)]


def _places(run: CollectedRun) -> list[str]:
    """Return the directories of a run's files, or their names where they have none (standard input)."""
    files = {file for member in run.members for file in member.process.files}
    return sorted({str(Path(file).parent) if os.sep in file else file for file in files})


def _default() -> str:
    directory = os.environ.get(DIRECTORY) or DEFAULT_DIRECTORY
    if not is_there("the default PATH", directory):
        raise BadUse(
            f"no PATH given, and the default, {directory}, does not exist; name a run,"
            " or start one: sglang-probe run -- python -m sglang.launch_server ..."
        )
    return directory
