"""Does the probe change the server that it looks at? The same SGLang, without and with it, in alternation.

    python bench/observer.py --model DIR [--tp 2] [--pairs 2] [--json FILE] [-- SGLang's own flags]
    PYTHONPATH=SITE python bench/observer.py --python PY --model DIR -- --load-format dummy --skip-tokenizer-init

Compared: the KV tokens; the tokens generated at temperature 0; NVML's memory of every process, to the MiB, and its list
of processes all through the start; torch's allocator in each scheduler (told by bench/witness, which stands in both
halves); the lines that the server prints; readings inside a graph's capture; the seconds until it is ready. Needs
nothing but SGLang's own environment; without a GPU the rows of NVML and torch say "not measured here".
Exit code 0: the same; 1: something differs; 2: a server did not start, or the time was over.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.cards import Cards, Watch, title
from bench.comparison import Row, Start, compare, differs, document, read_in_captures
from bench.served import ROOT, BenchError, Subject, doorbell, end_on_sigterm, environment, served
from lanes.server import group_members, wait_until

WITNESS: Final = ROOT / "bench" / "witness"
PROMPTS: Final = ([17, 42, 99], [5, 4, 3, 2, 100, 101, 102], list(range(10, 74)))
"""Token ids that every vocabulary has."""
SETTLES_WITHIN_S: Final = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the starts, print the table, return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:cut])
    subject = Subject(arguments.python, arguments.model, arguments.tp, tuple(words[cut + 1 :]))
    deadline = time.monotonic() + arguments.limit
    starts: list[Start] = []
    failure = None
    try:
        for number, probed in enumerate(_order(arguments.pairs, warm_up=not arguments.no_warm_up)):
            folder = arguments.keep / f"{number}-{'with' if probed else 'without'}"
            start = observe(subject, folder, probed=probed, within_s=min(arguments.start_limit, _left(deadline)))
            discarded = number == 0 and not arguments.no_warm_up
            starts += [] if discarded else [start]
            print(_told(start, folder, discarded=discarded), file=sys.stderr, flush=True)
            _save(arguments.json, starts, subject, None)
    except BenchError as error:
        failure = str(error)
        print(f"observer.py: {failure}", file=sys.stderr)
    rows = _rows(starts)
    _save(arguments.json, starts, subject, failure)
    print(table(rows) if rows else "no pair of starts was made")
    return 2 if failure is not None or not rows else int(differs(rows))


def observe(subject: Subject, folder: Path, *, probed: bool, within_s: float) -> Start:
    """Start the server once, ask it, end it; return what it showed. Raises BenchError where it does not get ready."""
    cards = Cards()
    folder.mkdir(parents=True, exist_ok=True)
    own = {"SGLANG_WITNESS_DIR": str(folder), **({"SGLANG_PROBE_DIR": str(folder / "runs")} if probed else {})}
    env = environment(*([doorbell()] if probed else []), WITNESS, **own)
    logs = folder / "stdout.log", folder / "stderr.log"
    before = cards.pids()
    with Watch(cards) as seen, served(subject, env, logs) as server:
        if not server.wait(server.is_ready, within_s):
            what = "ended before it was ready" if server.returncode is not None else f"not ready in {within_s:.0f} s"
            raise BenchError(f"the server {'with' if probed else 'without'} the probe {what}\n{server.tail()}")
        start = Start(probed, seconds=server.ready_s, kv_tokens=server.kv_tokens())
        start.answers = [server.generate(prompt) for prompt in PROMPTS]
        members = set(group_members(server.pid))
        _ask_cards(start, cards, members)
        witnesses = _ask_witnesses(members, folder)
        server.end()
    if cards.why_not is None:
        titles = {pid: seen.titles.get(pid, "?") for pid in seen.most_mib if pid not in before}
        start.listed = sorted(titles.values())
        start.contexts = sorted(one for one in start.listed if not one.startswith("sglang::scheduler"))
    cards.wait_only(before)
    start.stdout, start.stderr = (log.read_text(errors="replace").splitlines() for log in logs)
    start.torch = _torch(witnesses)
    start.captures = sum(len(told["captures"]) for told in witnesses.values())
    _look_at_events(start, folder / "runs", {pid: told["captures"] for pid, told in witnesses.items()})
    (folder / "start.json").write_text(json.dumps(document([], [start])), encoding="utf-8")
    return start


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    lines = [f"{'':6} {'what':42} {'without':40} with"]
    for row in rows:
        verdict = {True: "same", False: "DIFFER", None: "-"}[row.same]
        lines.append(f"{verdict:6} {row.what:42} {row.without[:110]:40} {row.with_probe[:110]}")
        lines += [f"{'':6} {'':42} {row.note}"] if row.note else []
    return "\n".join(lines)


def _order(pairs: int, *, warm_up: bool) -> list[bool]:
    """Return which starts are probed: a first one to be thrown away, then pairs whose first half changes."""
    alternating = [half for pair in range(pairs) for half in ((False, True) if pair % 2 == 0 else (True, False))]
    return [True, *alternating] if warm_up else alternating


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left < 1:
        raise BenchError("the time is over (--limit)")
    return left


def _ask_cards(start: Start, cards: Cards, members: set[int]) -> None:
    if cards.why_not is not None:
        return
    start.used_mib = cards.used_mib()
    start.process_mib = cards.mib_by_title(members)


def _ask_witnesses(members: set[int], folder: Path) -> dict[int, dict[str, Any]]:
    """Return what the witness of every scheduler says, by pid."""
    told: dict[int, dict[str, Any]] = {}
    for pid in members:
        named = title(pid)
        if not named.startswith("sglang::scheduler"):
            continue
        file = folder / f"{pid}.json"
        os.kill(pid, signal.SIGUSR2)
        if not wait_until(file.exists, SETTLES_WITHIN_S):
            raise BenchError(f"{named} (pid {pid}) did not say what torch holds within {SETTLES_WITHIN_S:.0f} s")
        told[pid] = json.loads(file.read_text()) | {"title": named}
        file.unlink()
    return told


def _torch(witnesses: dict[int, dict[str, Any]]) -> dict[str, dict[str, int]] | None:
    """Return torch's statistics by scheduler and device; None where none has CUDA."""
    told = witnesses.values()
    return {f"{one['title']} on {index}": stats for one in told for index, stats in one["torch"].items()} or None


def _look_at_events(start: Start, runs: Path, captures: dict[int, list[list[int]]]) -> None:
    for file in sorted(runs.glob("*/*.jsonl")):
        events: list[dict[str, Any]] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        start.events += len(events)
        start.read_in_capture += read_in_captures(events, captures.get(events[0]["pid"], []) if events else [])
    if start.probed and not start.events:
        raise BenchError("the start with the probe left no event; `sglang-probe doctor -- PYTHON` says why")


def _rows(starts: Sequence[Start]) -> list[Row]:
    return compare(starts) if {start.probed for start in starts} == {True, False} else []


def _save(file: Path | None, starts: Sequence[Start], subject: Subject, failure: str | None) -> None:
    if file is None:
        return
    rows = _rows(starts)
    command = subject.command(0)
    told = document(rows, starts, command=command, machine=Cards().versions(), failure=failure)
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if rows:
        file.with_suffix(".txt").write_text(table(rows) + "\n", encoding="utf-8")


def _told(start: Start, folder: Path, *, discarded: bool) -> str:
    half = "with" if start.probed else "without"
    kept = ", to warm up" if discarded else ""
    return f"{half} the probe{kept}: ready in {start.seconds:.1f} s, {start.kv_tokens} tokens ({folder})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="observer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--python", default=sys.executable, metavar="PY", help="that runs SGLang (default: this one)")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel size (default 1)")
    parser.add_argument("--pairs", type=_count, default=2, metavar="N", help="starts of each half (default 2)")
    parser.add_argument("--no-warm-up", action="store_true", help="do not throw a first start away (it compiles)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="everything; the table goes beside it, as .txt")
    parser.add_argument("--keep", type=Path, default=Path("observer-starts"), metavar="DIR", help="logs and events")
    parser.add_argument("--start-limit", type=float, default=300, metavar="S", help="for one start (default 300)")
    parser.add_argument("--limit", type=float, default=1800, metavar="S", help="for all of it (default 1800)")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs; say 1 or more")
    return int(text)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
