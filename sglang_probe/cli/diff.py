"""Say what two runs differ in, what it cost, and which difference explains the outcome.

    sglang-probe diff sglang-probe-runs/yesterday sglang-probe-runs/today
    sglang-probe diff baseline.log sglang-probe-runs/today
    sglang-probe diff A B C D
    sglang-probe diff A B --format json | jq .causes
    sglang-probe diff A B -o report.html         both side by side, the differences first; opens from disk

BASELINE and CANDIDATE are run directories, files of events, plain logs of SGLang's, or directories of runs or of logs
(of which the newest is taken); one of them may be - for standard input; FILE#2 is the second start in a log. The
candidate is compared with the baseline: SGLang's version, commit and the bodies of the functions that are hooked,
arguments, variables, versions, cards, and who else was on them; then phase by phase and category by category on each
rank; then the arithmetic. With more than two it is a matrix. What differs by nature (run ids, pids, ports, seeds,
times) is left out; --all shows it, and what is the same.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.files import Place, place_of, replacing
from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.looks import add_plain, looks_of
from sglang_probe.cli.output import emit, emit_json
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, how_to_name_one, refuse_unused
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Diff
from sglang_probe.explain.engine import as_printed, explain
from sglang_probe.report.diff import diff_text, read_lines
from sglang_probe.report.document import json_pieces
from sglang_probe.report.plain import printable
from sglang_probe.timeline import Timeline, build
from sglang_probe.timeline.model import Run

MANY = 4
STDIN = "-"
PAGE = ".html"
COMPARISON = "sglang_probe.report.html.comparison"
ENDINGS = {PAGE: "the runs side by side, the differences first", ".json": "the comparison, for a program"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to compare and how to show it."""
    parser.add_argument("baseline", metavar="BASELINE", help="the run to compare with")
    parser.add_argument("candidate", metavar="CANDIDATE", nargs="+", help="the run, or runs, that may differ from it")
    add_assume(parser)
    parser.add_argument("--all", action="store_true", help="show what is the same too, and what differs by nature")
    add_plain(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead: .html or .json")


def run(args: argparse.Namespace) -> int:
    """Print the comparison, or write it to a file."""
    paths = [args.baseline, *args.candidate]
    wanted = _wanted(args.output)
    if paths.count(STDIN) > 1:
        raise BadUse("standard input (-) is named more than once, and can be read once; give a file for the others")
    collected, told = [collect([path]) for path in paths], assumed(args.assume)
    refuse_unused(told, collected)
    looks = looks_of(args)
    with stages() as doing:
        doing.at("building the timelines")
        timelines = [build(one, assumed=told) for one in collected]
        runs = [_only(path, timeline) for path, timeline in zip(paths, timelines, strict=True)]
        with as_printed(runs):
            doing.at("comparing")
            found = compare(runs, everything=args.all)
            if wanted is not None:
                doing.at(f"writing {printable(wanted.name)}")
                _write(wanted, found, timelines)
            elif args.format == "text":
                doing.at("rendering")
                text = diff_text(found, looks.width, colour=looks.colour)
    if wanted is not None:
        emit(f"{printable(wanted.name)}: {ENDINGS[wanted.ending]}\n")
        return 0
    if args.format == "json":
        emit_json(found)
        return 0
    emit(text)
    emit(read_lines(timelines, [side.name for side in found.sides], looks.width))
    return 0


def _wanted(output: str | None) -> Place | None:
    """Return what file is to be written, before anything long is read; None where none is.

    Raises:
        BadUse: no kind that this command writes, or a place where it cannot.
    """
    if output is None:
        return None
    ending = next((one for one in ENDINGS if output.lower().endswith(one)), None)
    if ending is None:
        raise BadUse(f"-o {output!r} has no ending that says what to write; end it in {' or '.join(ENDINGS)}")
    if ending == PAGE:
        importlib.import_module(COMPARISON)  # what it needs may not be installed
    return place_of(output, ending)


def _write(place: Place, found: Diff, timelines: Sequence[Timeline]) -> None:
    with replacing(place) as path:
        if place.ending == PAGE:
            from sglang_probe.report.html.comparison import write_comparison  # plotly, of the extra `report`

            write_comparison(found, timelines, [explain(one) for one in timelines], path)
        else:
            path.write_bytes(b"".join(json_pieces(found)))


def _only(path: str, timeline: Timeline) -> Run:
    """Return the one run of a path.

    Raises:
        BadUse: there is none, or more than one.
    """
    if not timeline.runs:
        raise BadUse(f"{path} holds no run of a server; give a run directory, a file of events, or a log")
    if len(timeline.runs) > 1:
        many = f"{path} holds {len(timeline.runs)} runs ({_named(timeline.runs)}), and a side is one"
        raise BadUse(f"{many}; {how_to_name_one(timeline.runs, path)}")
    return timeline.runs[0]


def _named(runs: Sequence[Run]) -> str:
    names = [f"{run.run_id} launch {run.launch + 1}" if run.launch else run.run_id for run in runs]
    return ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")
