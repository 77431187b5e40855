"""Plan another start of a recorded run: the same server with other flags, or the flags for what you want.

    sglang-probe plan PATH --mem-fraction-static 0.80
        how many tokens, and what stays free
    sglang-probe plan PATH --tokens 400000 --free 6
        which fractions give 400,000 tokens and keep 6 GiB free
    sglang-probe plan PATH --kv-cache-dtype fp8_e5m2 --concurrency 64
    sglang-probe plan FAILED --like STARTED
        a run that failed early, with what it never came to measure
    sglang-probe plan server.log --assume mem_fraction_static=0.83
        from a plain log, with what it does not hold
    sglang-probe plan A --against B
        predict run B from run A, beside what B measured

It replays the formula of the run's own SGLang release with the run's own measured terms. Each number has its basis:
given, measured in this run, scaled by a stated rule, assumed, or unknown. PATH is one run, as for `timeline`: events or
a plain log of SGLang's. Memory is in GiB. Exit code 1: it would not start, or a wish does not hold. docs/plan.md has
the rules, and how far they were off.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.given import add_assume, assumed, fraction, number
from sglang_probe.cli.looks import add_plain, looks_of
from sglang_probe.cli.output import emit, emit_json
from sglang_probe.cli.progress import stages
from sglang_probe.cli.reading import collect, how_to_name_one, refuse_unused
from sglang_probe.explain.engine import as_printed
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import CannotPlan
from sglang_probe.explain.scaling import KV_DTYPES, MOST_SIZES, QUANTIZATIONS
from sglang_probe.figures import GIB, listed
from sglang_probe.report.plan import plan_text
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run

MOST = 1 << 40
"""Larger counts are a slip of the hand."""
SHOWN = 4
"""Runs named when one has to be chosen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the run, what shall differ, and what shall hold."""
    parser.add_argument("path", metavar="PATH", nargs="*", help="the run to plan from (see above)")
    flags = parser.add_argument_group("what shall differ, as SGLang's flags of these names")
    flags.add_argument("--mem-fraction-static", type=fraction, metavar="F")
    flags.add_argument("--tp", "--tp-size", dest="tp", type=_count(1 << 20), metavar="N")
    flags.add_argument("--kv-cache-dtype", choices=KV_DTYPES, metavar="T", help=", ".join(KV_DTYPES))
    flags.add_argument("--quantization", choices=QUANTIZATIONS, metavar="Q", help=", ".join(QUANTIZATIONS))
    flags.add_argument("--cuda-graph-max-bs", type=_count(MOST_SIZES), metavar="N")
    flags.add_argument("--max-running-requests", type=_count(MOST), metavar="N")
    flags.add_argument("--context-length", type=_count(MOST), metavar="N")
    flags.add_argument("--chunked-prefill-size", type=_count(MOST), metavar="N")
    flags.add_argument("--max-total-tokens", type=_count(MOST), metavar="N")
    flags.add_argument("--page-size", type=_count(MOST_SIZES), metavar="N")
    flags.add_argument("--disable-custom-all-reduce", action="store_true")
    flags.add_argument("--no-draft", action="store_true", help="without speculative decoding")
    flags.add_argument("--without-tenants", action="store_true", help="others' memory on the cards given back")
    wishes = parser.add_argument_group("what shall hold; without --mem-fraction-static it is solved for")
    wishes.add_argument("--tokens", type=_count(MOST), metavar="N", help="of KV cache")
    wishes.add_argument("--concurrency", type=_count(MOST), metavar="N", help="requests of the context length at once")
    wishes.add_argument("--free", type=_gib, metavar="GIB", help="free after the start")
    more = parser.add_argument_group("what the run does not say")
    more.add_argument("--token-bytes", type=_count(MOST), metavar="N", help="bytes of a token on one rank")
    more.add_argument("--kv-heads", type=_count(1 << 20), metavar="N", help="KV heads of the model, for --tp")
    add_assume(more)
    more.add_argument("--like", metavar="PATH", help="a run of the same server, for what this one never measured")
    parser.add_argument("--against", metavar="PATH", help="predict this run, and print it beside what it measured")
    add_plain(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    wishes = Wishes(args.tokens, args.concurrency, args.free)
    named = {"--like": args.like, "--against": args.against}
    collected = {what: collect([path]) for what, path in named.items() if path is not None}
    collected["PATH"] = collect(args.path)
    told = assumed(args.assume)
    refuse_unused(told, collected.values())
    with stages() as doing:
        doing.at("building the timelines" if len(collected) > 1 else "building the timeline")
        runs = {what: _one(build(one, assumed=told).runs, what) for what, one in collected.items()}
    like, against = runs.get("--like"), runs.get("--against")
    with as_printed(runs.values()):
        try:
            made = plan(runs["PATH"], _inputs(args), wishes, like=like, against=against)
        except CannotPlan as error:
            raise BadUse(str(error)) from error
        if args.format == "json":
            emit_json(made)
        else:
            looks = looks_of(args)
            emit(plan_text(made, looks.width, colour=looks.colour))
    held = [made.starts, *(wish.holds for wish in made.wishes)]
    return 1 if False in held else 0


def _one(runs: tuple[Run, ...], what: str) -> Run:
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise BadUse(f"{what} holds no run; name the directory of one")
    names = listed([f"{one.run_id}{f' (launch {one.launch + 1})' if one.launch else ''}" for one in runs], SHOWN)
    way = how_to_name_one(runs, "FILE")
    raise BadUse(f"{what} holds {len(runs)} runs: {names}; a plan is made from one: {way}")


def _inputs(args: argparse.Namespace) -> Inputs:
    named = {name: getattr(args, name) for name in Inputs._fields if hasattr(args, name)}
    return Inputs(
        **named,
        custom_all_reduce=False if args.disable_custom_all_reduce else None,
        draft=False if args.no_draft else None,
        tenants={} if args.without_tenants else None,
    )


def _gib(text: str) -> int:
    value = number(text)
    if not 0 <= value < MOST / GIB:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GiB from 0 to {MOST // GIB}, such as 6")
    return round(value * GIB)


def _count(most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        digits = text.replace(",", "").replace("_", "")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most:,}")
        return value

    return count
