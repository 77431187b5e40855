"""What do the communicators and the custom all-reduce's buffers cost, by the number of ranks? And the story, recorded.

    python bench/by_ranks.py OUT --model DIR [--story] [-- SGLang's own flags]
    python bench/by_ranks.py --from RECORDING...

Starts a server with 1, 2, 4 and 8 ranks (--sizes), as far as the machine has GPUs, and from 2 on one with the first
family of the all-reduce; prints a Markdown table of what was measured beside what `bench/predicted.py` foretells, and
leaves it in OUT/by-ranks.md. --story records the design's story first, at --tp of all GPUs: healthy, without the custom
all-reduce, a tenant, a fraction too low, DP attention. All of it is recorded as failures.py does it: called again, it
goes on where it stopped. --from makes the table of recordings: directories of events, or of several such.
Exit code 0: each start came out as expected; 1: one did not, or was not played; 2: bad use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.cards import Cards
from bench.failures import play, take_subject
from bench.rank_costs import Measured, sources, table
from bench.served import Subject, end_on_sigterm
from bench.sizes import BY_RANKS, SIZES, story
from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import read
from sglang_probe.timeline import build, to_json

TABLE: Final = "by-ranks.md"
SIZED: Final = {one.name for one in BY_RANKS}


def main(argv: Sequence[str] | None = None) -> int:
    """Play what is not recorded yet, print the table; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = _parser()
    arguments = parser.parse_args(words[:cut])
    if arguments.recordings:
        try:
            measured = measured_in(arguments.recordings)
        except InputError as error:
            parser.error(str(error))
        if measured.fake and measured.real:
            parser.error("some of these runs are of fake GPUs: a table holds what was measured, or what fakes said")
        print("\n".join(_text(measured, arguments.sizes)))
        return 0
    if arguments.out is None or arguments.model is None:
        parser.error("say where the recordings go, and --model DIR; or --from RECORDING...")
    cards = Cards()
    tp = arguments.tp or max(size for size in SIZES if size <= max(1, len(cards)))
    asked_for = [*(story(tp) if arguments.story else ()), *(one for one in BY_RANKS if one.ranks in arguments.sizes)]
    wanted = [one for one in asked_for if one.cards <= len(cards)]
    subject = Subject(arguments.python, arguments.model, tp, tuple(words[cut + 1 :]))
    print(f"--tp {tp} on {len(cards)} GPUs: {len(wanted)} starts", flush=True)
    for one in asked_for:
        if one not in wanted:
            print(f"{one.name:18}left out: it needs {one.cards} GPUs", flush=True)
    played = play(wanted, subject, cards, arguments)
    good = [arguments.out / told["name"] for told in played if told["as_expected"]]
    text = _text(measured_in([place for place in good if place.name in SIZED]), arguments.sizes)
    print("\n".join(["", *text]))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / TABLE).write_text("\n".join([*text, ""]), encoding="utf-8")
    return int(len(good) < len(played))


def measured_in(places: Iterable[Path]) -> Measured:
    """Return what the ranks of all runs at these places paid. Raises InputError where one holds no run."""
    measured = Measured()
    for place in places:
        for events in sorted({file.parent for file in place.rglob("*.jsonl")}) or [place]:  # one run each
            for run in timeline_of(events):
                measured.add(run)
    return measured


def timeline_of(events: Path) -> list[dict[str, Any]]:
    """Return the runs of a directory of events as our timeline's JSON has them. Raises InputError where it has none."""
    runs: list[dict[str, Any]] = to_json(build(read([str(events)])))["runs"]
    return runs


def _text(measured: Measured, sizes: Sequence[int]) -> list[str]:
    return [*table(measured, sizes), "", *sources(measured)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="by_ranks.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT", help="where the recordings go")
    parser.add_argument(
        "--from", dest="recordings", nargs="+", type=Path, metavar="RECORDING", help="start nothing: a table of these"
    )
    take_subject(parser)
    parser.add_argument("--tp", type=int, metavar="N", help="of the story (default: the most that the GPUs allow)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, choices=SIZES, metavar="N", help="numbers of ranks (1 2 4 8)"
    )
    parser.add_argument("--story", action="store_true", help="record the starts of the story first")
    return parser


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
