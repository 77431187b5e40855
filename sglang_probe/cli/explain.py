"""Say why a start failed, or what a running server's memory is limited by, and what to do about it.

    sglang-probe explain
    sglang-probe explain sglang-probe-runs/20261129T184500Z-3fa9c1
    sglang-probe explain server.log
    sglang-probe explain --tokens 400000 RUN     the fraction must leave room for so many tokens
    sglang-probe explain --format json RUN | jq '.runs[].findings[0].says'

PATH and --assume as for `timeline`: runs, events, plain logs. A cause comes with its formula, the values put in, and
what would make room: the flag and how many GiB. Memory is in GiB (2^30 bytes, what SGLang calls GB). Exit code 1 where
a cause of a failure was found.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from sglang_probe.cli.given import add_assume, assumed
from sglang_probe.cli.looks import add_plain, looks_of
from sglang_probe.cli.output import emit, emit_json
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, refuse_unused
from sglang_probe.explain.engine import explain, to_json
from sglang_probe.report.explain import explain_text
from sglang_probe.timeline import build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to read, what the cache should hold, and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="what to read (see above)")
    add_assume(parser)
    parser.add_argument("--tokens", type=_tokens, default=0, metavar="N", help="tokens that the KV cache should hold")
    add_plain(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 where one of them explains a failure."""
    collected, told = collect(args.path), assumed(args.assume)
    refuse_unused(told, [collected])
    with stages() as doing:
        doing.at("building the timeline")
        timeline = build(collected, assumed=told)
        doing.at("explaining")
        explanation = explain(timeline, args.tokens)
        if args.format == "text":
            doing.at("rendering")
            looks, now = looks_of(args), datetime.now(timezone.utc)
            text = explain_text(explanation, timeline, looks.width, colour=looks.colour, now=now)
    if args.format == "json":
        emit_json(to_json(explanation))
    else:
        emit(text)
    return int(any(finding.severity == "error" for one in explanation.runs for finding in one.findings))


def _tokens(text: str) -> int:
    plain = text.replace(",", "").replace("_", "")
    if not plain.isdecimal() or not plain.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 400000")
    return int(plain)
