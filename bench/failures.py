"""Make SGLang fail in every way that matters to memory, and start in ways that change it, with the probe; record each.

    python bench/failures.py OUT --model DIR [--tp 2] [--only NAME ...] [-- SGLang's own flags]
    python bench/failures.py --list | OUT --show

Every scenario leaves a folder below OUT at once: `events/RUN/*.jsonl` as the probe wrote them, `RUN.log` of SGLang,
`RUN.timeline.json` and `.txt`, and `scenario.json` (commands, versions, machine, tenants, outcome, what was expected).
A scenario that OUT has already is not played again, one that --limit cut short is; `bench/scrub.py` makes recordings of
it that can be published.
Only on a machine whose GPUs are free for it: tenants take what they can get. Everything started is ended again.
Exit code 0: each came out as expected; 1: one did not; 2: bad use.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.cards import Cards
from bench.scenarios import EXPERIMENTS, FAILURES, Scenario
from bench.served import BenchError, Subject, end_on_sigterm
from bench.sizes import BY_RANKS, DP_ATTENTION
from bench.stage import Stage

SCENARIOS: Final = (*FAILURES, *EXPERIMENTS, *DP_ATTENTION, *BY_RANKS)


def main(argv: Sequence[str] | None = None) -> int:
    """Play the scenarios, print one line each; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = _parser()
    arguments = parser.parse_args(words[:cut])
    if arguments.list:
        print("\n".join(map(_listed, SCENARIOS)))
        return 0
    if arguments.show and arguments.out is not None:
        print("\n".join(line(told) for told in recorded(arguments.out)))
        return 0
    if arguments.out is None or arguments.model is None:
        parser.error("say where the recordings go, and --model DIR")
    subject = Subject(arguments.python, arguments.model, arguments.tp, tuple(words[cut + 1 :]))
    cards = Cards()
    played = play(chosen(arguments.only, arguments.skip, len(cards)), subject, cards, arguments)
    return int(any(told["as_expected"] is False for told in played))


def play(
    scenarios: Iterable[Scenario], subject: Subject, cards: Cards, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Record scenarios one after the other, print a line of each, and return what each came to."""
    deadline, played = time.monotonic() + arguments.limit, []
    for scenario in scenarios:
        played.append(_record(scenario, subject, cards, arguments.out, deadline, arguments.each))
        print(line(played[-1]), flush=True)
    return played


def chosen(only: Sequence[str], skip: Sequence[str], cards: int) -> list[Scenario]:
    """Return the scenarios to play on a machine of so many GPUs: those named, in their order, else all that fit."""
    by_name = {one.name: one for one in SCENARIOS}
    if only:
        return [by_name[name] for name in only if name not in skip]
    captures = cards > 0  # without a GPU nothing is captured, and a rank is killed elsewhere
    unfit = {"sigkill-pool"} if captures else set()
    return [one for one in SCENARIOS if one.cards <= cards and one.name not in {*unfit, *skip}]


def recorded(out: Path) -> list[dict[str, Any]]:
    """Return what every scenario that OUT has came to."""
    files = (out / one.name / "scenario.json" for one in SCENARIOS)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def line(told: dict[str, Any]) -> str:
    """Return one scenario's line of the table."""
    verdict = {True: "as expected", False: "NOT AS EXPECTED", None: "not played"}[told["as_expected"]]
    said = f"{told.get('outcome')}, {told.get('failed_phase')}" if "outcome" in told else ""
    why = str(told.get("error") or "").splitlines()[:1]
    return f"{told['name']:18}{verdict:16}{told.get('seconds', 0):6.1f} s  {said} {' '.join(why)}".rstrip()


def _record(
    scenario: Scenario, subject: Subject, cards: Cards, out: Path, deadline: float, each_s: float
) -> dict[str, Any]:
    done = out / scenario.name / "scenario.json"
    if done.exists():
        known: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return known
    left = deadline - time.monotonic()
    if left < scenario.seconds_with(subject.tp):
        return {"name": scenario.name, "as_expected": None, "error": f"{left:.0f} s left of --limit"}
    began = time.monotonic()
    stage = Stage(scenario.name, subject, cards, out, min(deadline, began + each_s))
    stage.afresh()
    error = None
    try:
        scenario.play(stage)
    except BenchError as problem:
        error = str(problem)
    except Exception as problem:  # noqa: BLE001  # what breaks one scenario must not cost those that follow
        error = f"{type(problem).__name__}: {problem}"
    if error is not None and time.monotonic() >= deadline:  # not the scenario's doing: the next call plays it
        return {"name": scenario.name, "as_expected": None, "error": f"cut short by --limit: {error}"}
    run = stage.timeline(scenario.name)
    told = {
        "name": scenario.name,
        "what": scenario.what,
        "outcome": run.get("outcome"),
        "failed_phase": run.get("failed_phase"),
        "expected": {"outcomes": scenario.outcomes, "phases": scenario.phases},
        "as_expected": error is None and _matches(scenario, run),
        "error": error,
        "seconds": round(time.monotonic() - began, 1),
        "tp": scenario.ranks or subject.tp,
        "machine": {**cards.versions(), "python": platform.python_version(), "kernel": platform.release()},
        "versions": _versions(stage),
        **stage.notes,
    }
    done.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


def _matches(scenario: Scenario, run: dict[str, Any]) -> bool:
    outcome = not scenario.outcomes or run.get("outcome") in scenario.outcomes
    return outcome and (not scenario.phases or run.get("failed_phase") in scenario.phases)


def _versions(stage: Stage) -> dict[str, Any]:
    """Return the versions that a process of the run has told, the most complete one's."""
    starts = stage.events("sglang.probe.process.start", stage.name)
    told: list[dict[str, Any]] = [event["attributes"].get("versions") or {} for event in starts]
    return max(told, key=lambda versions: sum(value is not None for value in versions.values()), default={})


def _listed(one: Scenario) -> str:
    return f"{one.name:18}{one.seconds:4} s {one.cards:2} GPUs  {one.what}"


def take_subject(parser: argparse.ArgumentParser) -> None:
    """Take what is started and how long it may take."""
    parser.add_argument("--model", metavar="DIR")
    parser.add_argument("--python", default=sys.executable, metavar="PY", help="that runs SGLang (default: this one)")
    parser.add_argument("--each", type=float, default=240, metavar="S", help="for one scenario (default 240)")
    parser.add_argument("--limit", type=float, default=1800, metavar="S", help="for all of it (default 1800)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="failures.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [one.name for one in SCENARIOS]
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT", help="where the recordings go")
    parser.add_argument("--list", action="store_true", help="print the scenarios and what they need")
    parser.add_argument("--show", action="store_true", help="play nothing: print what OUT has")
    take_subject(parser)
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel size (default 1)")
    parser.add_argument("--only", nargs="+", default=[], choices=names, metavar="NAME", help="these, in this order")
    parser.add_argument("--skip", nargs="+", default=[], choices=names, metavar="NAME", help="not these")
    return parser


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
