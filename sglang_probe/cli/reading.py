"""What every command that reports reads: the paths that were given, or the default directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.paths import is_there
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import Collected, CollectedRun, read
from sglang_probe.events.variables import DEFAULT_DIRECTORY, DIRECTORY


def collect(paths: Sequence[str]) -> Collected:
    """Read the paths, or where there is none the default directory.

    Raises:
        BadUse: nothing is there, or it cannot be read.
    """
    try:
        return read(list(paths) or [_default()], None if sys.stdin is None else sys.stdin.buffer)
    except InputError as error:
        raise BadUse(str(error)) from error


def places(run: CollectedRun) -> list[str]:
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
