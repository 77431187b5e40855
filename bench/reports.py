"""How fast a run is rendered in every format, how much memory that takes, and how large it comes out.

    python bench/reports.py [--ranks 1 8 512] [--repeats 3]
    python bench/reports.py --ranks 10000 --repeats 1          JSON, Parquet and the terminal alone

Runs of so many ranks are made by many_ranks.py out of a recording. Every way runs in a process of its own: reading,
building and explaining are done first and listed apart, then the command itself is run on what they made, so that its
seconds are those of rendering (the writer's imports and the file included). The peer is the standard library's
`json.dumps` of the same timeline in the same round: a machine that is busy is slower for both. Bars: 512 ranks in every
format in under 5 s, 10,000 ranks in JSON, Parquet and the terminal in under 10 s.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.many_ranks import write_ranks
from sglang_probe.cli.main import main as command
from sglang_probe.collect import read
from sglang_probe.explain.engine import explain
from sglang_probe.report.formats import FORMATS
from sglang_probe.timeline import build, to_json

MANY: Final = 5000
"""From so many ranks on only what an operator needs then is measured."""
FOR_MANY: Final = ("timeline", "timeline --format json", "explain", ".json", ".parquet")
PEER: Final = "json.dumps"
COMMANDS: Final = ("timeline", "timeline --format json", "explain", "explain --format json")
STAGES: Final = ("collect", "build", "explain")
"""What a command does before it renders, by its names for it."""


def main() -> None:
    """Make the runs, render each in every way, print what each took."""
    told = _arguments()
    if told.way is not None:
        print(json.dumps(_measure(told.way, told.run)))
        return
    for ranks in told.ranks:
        with tempfile.TemporaryDirectory(dir=told.directory, prefix="reports-") as directory:
            write_ranks(Path(directory, "run"), ranks)
            ways = [PEER, *(way for way in (*COMMANDS, *_endings()) if ranks < MANY or way in FOR_MANY)]
            rounds = [{way: _in_a_process(way, directory) for way in ways} for _ in range(told.repeats)]
        _print(ranks, ways, rounds)


def _endings() -> Iterator[str]:
    """Yield the formats whose module is here."""
    for one in FORMATS:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(one.module) is not None:
                yield one.ending


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 512], help="how many (default 1 8 512)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median is printed (default 3)")
    parser.add_argument("--directory", help="where runs are made (10,000 ranks: 1.2 GB)")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(way: str, directory: str) -> dict[str, float]:
    words = [sys.executable, __file__, "--way", way, "--run", directory]
    measured: dict[str, float] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return measured


def _measure(way: str, directory: str) -> dict[str, float]:
    """Read, build and explain a run, then render it in one way; seconds are of the wall clock."""
    seconds: dict[str, float] = {}
    with _timed(seconds, "collect"):
        collected = read([Path(directory, "run")])
    with _timed(seconds, "build"):
        timeline = build(collected, alive=lambda _: None)
    with _timed(seconds, "explain"):
        explanation = explain(timeline)
    before = _peak()
    out = Path(directory, f"out{way}" if way.startswith(".") else "out.txt")
    render = _peer(timeline, out) if way == PEER else _command(way, out, (collected, timeline, explanation))
    with _timed(seconds, "render"):
        render()
    return {**seconds, "before": before, "peak": _peak(), "size": _size(out)}


def _peer(timeline: Any, out: Path) -> Callable[[], object]:
    return lambda: out.write_text(json.dumps(to_json(timeline)))


def _command(way: str, out: Path, made: tuple[Any, ...]) -> Callable[[], None]:
    """Return what runs a command as the command line does, on what was read, built and explained already."""
    run = str(out.parent / "run")
    words = ["report", run, "-o", str(out)] if way.startswith(".") else [*way.split(), run]
    module = importlib.import_module(f"sglang_probe.cli.{words[0]}")
    for stage, ready in zip(STAGES, made, strict=True):
        if hasattr(module, stage):
            setattr(module, stage, lambda *_, _ready=ready, **__: _ready)
        elif stage != "explain":
            raise SystemExit(f"sglang_probe.cli.{words[0]} has no {stage} that could be done beforehand")

    def rendered() -> None:
        said = Path(f"{out}.said") if way.startswith(".") else out
        with said.open("w") as stream, contextlib.redirect_stdout(stream):
            code = command(words)
        if code not in {0, 1}:
            raise SystemExit(f"sglang-probe {way} ended with {code}")

    return rendered


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _size(out: Path) -> int:
    files = out.iterdir() if out.is_dir() else [out]
    return sum(file.stat().st_size for file in files)


def _print(ranks: int, ways: list[str], rounds: list[dict[str, dict[str, float]]]) -> None:
    def middle(way: str, what: str) -> float:
        return median(one[way][what] for one in rounds)

    stages = ", ".join(f"{stage} {middle(PEER, stage):.2f} s" for stage in STAGES)
    print(f"{ranks:,} ranks; before rendering: {stages}, {middle(PEER, 'before') / 2**20:,.0f} MiB at most")
    print(f"{'way':<24}{'seconds':>9}{'of json.dumps':>15}{'more MiB':>10}{'size KiB':>11}")
    for way in ways:
        seconds, more = middle(way, "render"), (middle(way, "peak") - middle(way, "before")) / 2**20
        of_peer = median(one[way]["render"] / one[PEER]["render"] for one in rounds)
        print(f"{way:<24}{seconds:>9.2f}{of_peer:>15.2f}{more:>10,.0f}{middle(way, 'size') / 1024:>11,.0f}")


if __name__ == "__main__":
    main()
