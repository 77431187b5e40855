"""Print what every rank's GPU memory was spent on, phase by phase, and the KV budget's formula with its values.

    sglang-probe timeline
    sglang-probe timeline sglang-probe-runs/20261129T184500Z-3fa9c1
    sglang-probe timeline server.log
    sglang-probe timeline --rank TP37 --rank TP200 RUN      these alone (1 is TP1); --all: every rank
    sglang-probe timeline --format json > timeline.json

PATH is a run directory, a directory of runs (of which the newest with a rank is shown), a file of events, a plain log
of SGLang's, a directory of logs (rotated, or one of each node; the newest start is shown), or - for standard input;
each is told by its content, compressed (gzip, zstd, xz, bzip2) or not, and several make one picture. Without PATH it is
SGLANG_PROBE_DIR, or sglang-probe-runs/ here. FILE#2 is the second start in a log, FILE#NAME what the container NAME
wrote there. What a log does not hold may be told: --assume mem_fraction_static=0.83. Memory is in GiB (2^30 bytes, what
SGLang calls GB); "-" is unknown, and a note says why. Ranks that agree (the same steps, states and facts, memory within
0.125 GiB of their median) are told once, with how far they are apart; who differs, fails or is the tightest is named. A
failed start is no error of this command.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.looks import add_plain, looks_of
from sglang_probe.cli.output import emit, emit_json
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, refuse_unused, where_of
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build, shown
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Process, Timeline
from sglang_probe.timeline.processes import is_called, ranks_of

_NUMBER: Final = re.compile(r"[0-9]+$")
"""What a label ends in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    add_assume(parser)
    parser.add_argument("--all", action="store_true", help="a block for every rank, also for those that agree")
    parser.add_argument("--rank", metavar="LABEL", action="append", default=[], help="this rank's block (1: TP1)")
    add_plain(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the timeline."""
    collected = collect(args.path)
    told = assumed(args.assume)
    refuse_unused(told, [collected])
    with stages() as doing:
        doing.at("building the timeline")
        timeline = build(collected, assumed=told)
        args.rank = _ranks_named(args.rank, timeline)
        if args.format == "text":
            doing.at("rendering")
            text = _text(args, timeline, where_of(collected))
    if args.format == "json":
        emit_json(shown(timeline))
    else:
        emit(text)
    return 0


def _text(args: argparse.Namespace, timeline: Timeline, where: Sequence[Sequence[str]]) -> str:
    looks = looks_of(args)
    return timeline_text(
        timeline,
        where,
        looks.width,
        colour=looks.colour,
        now=datetime.now(timezone.utc),
        bars=looks.bars,
        everything=args.all,
        only=args.rank,
    )


def _ranks_named(wanted: Sequence[str], timeline: Timeline) -> list[str]:
    """Return the labels that are asked for; a bare number is the rank whose label alone ends in it: 1 is TP1.

    Raises:
        BadUse: one is not there, or a number could be several.
    """
    ranks = [process for run in timeline.runs for process in ranks_of(run)]
    return [_label(name, ranks) for name in wanted]


def _label(name: str, ranks: Sequence[Process]) -> str:
    if any(is_called(process, name) for process in ranks):
        return name
    labels = list(dict.fromkeys(str(process.label) for process in ranks))
    numbered = [label for label in labels if _NUMBER.findall(label)[-1:] == [name]]
    if len(numbered) == 1:
        return numbered[0]
    there = f"its ranks are {named(labels)}" if labels else "no rank is in what was read"
    if numbered:
        raise BadUse(f"--rank {name!r} could be {named(numbered)}; give the whole label")
    raise BadUse(f"--rank {name!r} is none of this run's; {there}")
