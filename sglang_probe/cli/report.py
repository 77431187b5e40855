"""Write a report of a run to a file, whose ending says what it is.

    sglang-probe report RUN -o report.html              charts, findings, provenance: one file that opens from disk
    sglang-probe report RUN -o run.png                  the main chart for a ticket or a chat (or .svg)
    sglang-probe report RUN -o run.trace.json           for ui.perfetto.dev or chrome://tracing
    sglang-probe report RUN -o run.parquet              tables for SQL, a directory of them (or run.duckdb)
    sglang-probe report RUN -o run.prom                 metrics for Prometheus (OpenMetrics)
    sglang-probe report RUN -o run.json                 the timeline and the findings
    sglang-probe report server.log -o a.html -o b.png   several at once

PATH and --assume as for `timeline`: runs, events, plain logs; without PATH the newest run of the default directory. A
file that is there already is replaced, once the new one is whole. Only you can read what is written, but .prom anybody.
A failed start is no error of this command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.files import Place, place_of, replacing
from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.output import emit
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, refuse_unused, where_of
from sglang_probe.explain.engine import explain
from sglang_probe.report.formats import FORMATS, Format, Writer, format_of, ours_of, writer_of
from sglang_probe.report.material import Material
from sglang_probe.report.plain import printable
from sglang_probe.timeline import build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read and where to write."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", action="append", required=True, help=f"what to write: {_endings(FORMATS)}"
    )
    add_assume(parser)


def run(args: argparse.Namespace) -> int:
    """Write every file that was asked for, and print their names."""
    wanted = [_wanted(name) for name in dict.fromkeys(args.output)]  # before anything long is read
    told = assumed(args.assume)
    collected = collect(args.path)
    refuse_unused(told, [collected])
    with stages() as doing:
        doing.at("building the timeline")
        timeline = build(collected, assumed=told)
        doing.at("looking for causes")
        now = datetime.now(timezone.utc)
        material = Material(timeline, explain(timeline), collected, where_of(collected), now)
        for place, _, writer in wanted:
            doing.at(f"writing {printable(place.name)}")
            with replacing(place) as path:
                writer.write(material, path)
    emit("".join(f"{printable(place.name)}: {form.what}\n" for place, form, _ in wanted))
    return 0


def _wanted(name: str) -> tuple[Place, Format, Writer]:
    form = format_of(name.rstrip("/"))  # which a shell adds when it completes the name of a directory
    if form is None:
        raise BadUse(f"-o {name!r} has no ending that says what to write; end it in {_endings(FORMATS)}")
    writer = writer_of(form)
    return place_of(name, form.ending, is_ours=ours_of(form), is_private=not form.is_public), form, writer


def _endings(formats: Sequence[Format]) -> str:
    *others, last = (one.ending for one in formats)
    return f"{', '.join(others)} or {last}"
