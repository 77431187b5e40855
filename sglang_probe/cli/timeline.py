"""Print what every rank's GPU memory was spent on, phase by phase, and the KV budget's formula with its values.

    sglang-probe timeline
    sglang-probe timeline sglang-probe-runs/20261129T184500Z-3fa9c1
    sglang-probe timeline --format json > timeline.json

PATH is a run directory, a directory of runs (of which the newest with a rank is shown), a file of events, or - for
standard input; several make one picture. Without PATH it is SGLANG_PROBE_DIR, or sglang-probe-runs/ here. Memory is in
GiB (2^30 bytes, what SGLang calls GB); "-" is unknown, and a note says why. A failed start is no error of this command.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.output import emit, page_width, wants_colour
from sglang_probe.cli.paths import is_there
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import Collected, CollectedRun, read
from sglang_probe.events.variables import DEFAULT_DIRECTORY, DIRECTORY
from sglang_probe.report.plain import printable_json
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build, to_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the timeline."""
    collected = _read(args.path or [_default()])
    timeline = build(collected)
    if args.format == "json":
        document = msgspec.json.format(msgspec.json.encode(to_json(timeline))).decode()
        emit(printable_json(document) + "\n")
    else:
        where = [_places(one) for one in collected.runs]
        now = datetime.now(timezone.utc)
        emit(timeline_text(timeline, where, page_width(), colour=wants_colour(), now=now))
    return 0


def _read(paths: list[str]) -> Collected:
    try:
        return read(paths, None if sys.stdin is None else sys.stdin.buffer)
    except InputError as error:
        raise BadUse(str(error)) from error


def _default() -> str:
    directory = os.environ.get(DIRECTORY) or DEFAULT_DIRECTORY
    if not is_there("the default PATH", directory):
        raise BadUse(
            f"no PATH given, and the default, {directory}, does not exist; name a run,"
            " or start one: sglang-probe run -- python -m sglang.launch_server ..."
        )
    return directory


def _places(run: CollectedRun) -> list[str]:
    """Return the directories of a run's files, or their names where they have none (standard input)."""
    files = {file for member in run.members for file in member.process.files}
    return sorted({str(Path(file).parent) if os.sep in file else file for file in files})
