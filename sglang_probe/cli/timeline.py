"""Print what every rank's GPU memory was spent on, phase by phase, and the KV budget's formula with its values.

    sglang-probe timeline
    sglang-probe timeline sglang-probe-runs/20261129T184500Z-3fa9c1
    sglang-probe timeline server.log
    sglang-probe timeline --rank TP37 --rank TP200 RUN      these alone; --all: every rank
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
from collections.abc import Sequence
from datetime import datetime, timezone

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.looks import add_plain, looks_of
from sglang_probe.cli.output import emit, emit_json
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, refuse_unused, where_of
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build, shown
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Timeline
from sglang_probe.timeline.processes import is_called, ranks_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    add_assume(parser)
    parser.add_argument("--all", action="store_true", help="a block for every rank, also for those that agree")
    parser.add_argument("--rank", metavar="LABEL", action="append", default=[], help="the blocks of this name alone")
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
        _check_ranks(args.rank, timeline)
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


def _check_ranks(wanted: Sequence[str], timeline: Timeline) -> None:
    """Check that every rank that is asked for is there.

    Raises:
        BadUse: one is not.
    """
    ranks = [process for run in timeline.runs for process in ranks_of(run)]
    unknown = [label for label in wanted if not any(is_called(process, label) for process in ranks)]
    if unknown:
        labels = list(dict.fromkeys(process.label for process in ranks))
        there = f"its ranks are {named(labels)}" if labels else "no rank is in what was read"
        raise BadUse(f"--rank {unknown[0]!r} is none of this run's; {there}")
