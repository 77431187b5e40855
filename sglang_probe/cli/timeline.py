"""Print what every rank's GPU memory was spent on, phase by phase, and the KV budget's formula with its values.

    sglang-probe timeline
    sglang-probe timeline sglang-probe-runs/20261129T184500Z-3fa9c1
    sglang-probe timeline server.log
    sglang-probe timeline --format json > timeline.json

PATH is a run directory, a directory of runs (of which the newest with a rank is shown), a file of events, a plain log
of SGLang's, a directory of logs (rotated, or one of each node; the newest start is shown), or - for standard input;
each is told by its content, compressed (gzip, zstd, xz, bzip2) or not, and several make one picture. Without PATH it is
SGLANG_PROBE_DIR, or sglang-probe-runs/ here. FILE#2 is the second start in a log, FILE#NAME what the container NAME
wrote there. What a log does not hold may be told: --assume mem_fraction_static=0.83. Memory is in GiB (2^30 bytes, what
SGLang calls GB); "-" is unknown, and a note says why. A failed start is no error of this command.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.output import emit, emit_json, page_width, wants_colour
from sglang_probe.cli.reading import collect, refuse_unused, where_of
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    add_assume(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the timeline."""
    collected = collect(args.path)
    told = assumed(args.assume)
    refuse_unused(told, [collected])
    timeline = build(collected, assumed=told)
    if args.format == "json":
        emit_json(shown(timeline))
    else:
        now = datetime.now(timezone.utc)
        emit(timeline_text(timeline, where_of(collected), page_width(), colour=wants_colour(), now=now))
    return 0
