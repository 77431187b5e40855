"""Follow a start live: what each rank does, for how long against its peers, what is free, which rank is late.

    sglang-probe watch                          the next run, or the one that is starting
    sglang-probe watch RUN                      one run directory
    sglang-probe watch server.log               a plain log that grows; also rotated or cut
    sglang-probe watch --plain | tee start.txt  a line per change: for a pipe, a dumb terminal, a screen reader
    sglang-probe watch --format json            one JSON object a line, for a program
    sglang-probe watch --timeout 900 && deploy  only once the server is ready

Without PATH it is SGLANG_PROBE_DIR, or sglang-probe-runs/ here. Of a directory of runs the one that starts is followed
to its end; one that is over is not, and the next is waited for. It ends by itself, and tells what explains the run.

Exit codes: 0 the server is ready, 1 it failed, died or ended, 2 bad use or input, 3 not known: --timeout passed, or
nothing more is written and it cannot be known whether the processes live; 130 Ctrl-C, 143 SIGTERM, with the last
state left.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from datetime import datetime
from typing import Any, Final, NamedTuple

from sglang_probe.cli.departures import with_pids
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.follow import Follower, Sight
from sglang_probe.cli.follow_choice import SILENCE_S
from sglang_probe.cli.follow_files import HOW_TO_PIPE
from sglang_probe.cli.free_now import FreeNow
from sglang_probe.cli.given import number
from sglang_probe.cli.looks import Looks, add_plain, looks_of
from sglang_probe.cli.output import has_cursor
from sglang_probe.cli.watch_output import Json, Lines, Output, Screen
from sglang_probe.collect.sources import STDIN
from sglang_probe.events.variables import DEFAULT_DIRECTORY, DIRECTORY
from sglang_probe.explain.engine import explain, to_json
from sglang_probe.explain.model import Explanation
from sglang_probe.explain.subject import labels
from sglang_probe.report.explain import explain_text
from sglang_probe.report.layout import paragraph
from sglang_probe.report.outcome import headline
from sglang_probe.report.plain import printable
from sglang_probe.report.watch import Survey, survey_of, view_of
from sglang_probe.report.watch_changes import Change, changes
from sglang_probe.report.watch_model import View
from sglang_probe.timeline.model import Run, Timeline
from sglang_probe.timeline.values import as_number

LEAST_INTERVAL_S: Final = 0.1
MOST_INTERVAL_S: Final = 60.0
SETTLE_S: Final = 2.0
"""After an error its peers and the end of the processes follow: what explains it is complete when all is quiet."""
AT_MOST_S: Final = 10.0
"""But a server that hangs after an error is not waited for."""
HERE_S: Final = 10.0
"""Ranks elsewhere that are not heard of by then, after all ranks here are up, write elsewhere."""
REPLICAS_S: Final = 60.0
"""A data-parallel replica that is not heard of for so long, after others are up, is not waited for."""
NOT_KNOWN: Final = 3
SERVER_ROLES: Final = frozenset({"launcher", "scheduler", "tokenizer", "detokenizer", "dp_controller"})
"""Processes without which there is no server."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to follow, and how to show it."""
    parser.add_argument("path", metavar="PATH", nargs="?", help="what to follow (see above)")
    parser.add_argument("--interval", metavar="SECONDS", type=_interval, default=0.5, help="between looks (0.5)")
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="give up after so long, with exit code 3")
    add_plain(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Follow the start until it is over."""
    if args.path == STDIN:
        raise BadUse(f"standard input cannot be watched: {HOW_TO_PIPE}")
    path = args.path or os.environ.get(DIRECTORY) or DEFAULT_DIRECTORY
    looks = looks_of(args)
    output = _output(args.format, looks)
    try:
        return _follow(Follower(path, named=args.path is not None), output, looks, args.interval, args.timeout)
    finally:
        output.close()


def _output(form: str, looks: Looks) -> Output:
    if form == "json":
        return Json()
    return Lines() if looks.plain or not has_cursor() else Screen()


def _follow(follower: Follower, output: Output, looks: Looks, interval: float, timeout: float | None) -> int:
    begun = time.monotonic()
    come: dict[str, int] = {}
    followed = 0
    judge, free_now = Judge(), FreeNow()
    survey: Survey | None = None
    while True:
        sight = follower.look()
        if sight.run is None or sight.timeline is None:
            output.wait(sight.waiting)
        else:
            if followed != sight.serial:
                followed, come, judge, survey = sight.serial, {}, Judge(), None
                output.begin()
            told: tuple[Change, ...] = ()
            if survey is None or survey.run is not sight.run:
                survey = survey_of(sight.run)
                told, come = changes(survey, come)
            free = free_now.of(sight.run) if sight.run.outcome == "starting" else {}
            view = view_of(survey, sight.now, free)
            output.show(view, told)
            end = judge.end(sight, view)
            if end is not None:
                return _end(output, looks, sight, end)
        left = math.inf if timeout is None else begun + timeout - time.monotonic()
        if left <= 0:
            return _end(output, looks, sight, End(NOT_KNOWN, f"--timeout {timeout:g} has passed"))
        follower.rest(min(interval, left))


class End(NamedTuple):
    """That it is over, and why where the run itself does not say."""

    code: int
    says: str = ""


class Judge:
    """Says when a start is over."""

    def __init__(self) -> None:
        self._over_since: float | None = None

    def end(self, sight: Sight, view: View) -> End | None:
        """Return how it is over; None while it goes on, or while what comes after an error is waited for."""
        run = sight.run
        assert run is not None
        alive = [process.alive for process in run.processes]
        gone = bool(alive) and all(one is False for one in alive)
        if run.outcome == "ready" and run.source != "log":
            lost = [one for one in run.processes if one.alive is False and (one.label or one.role in SERVER_ROLES)]
            if lost and not gone:
                who, verb = with_pids(labels(lost), [one.pid for one in lost]), "is" if len(lost) == 1 else "are"
                return End(1, f"every rank came to be ready, but {who} {verb} gone")
            more = any(alive) and view.ranks < _replicated(run) and sight.quiet_s < REPLICAS_S
            return None if more else End(1 if gone else 0)
        if run.outcome in {"ready", "failed", "died"} or gone:
            return End(int(run.outcome != "ready")) if self._is_settled(sight, any(alive)) else None
        self._over_since = None
        if view.ranks and view.ready == view.ranks and view.rows and sight.quiet_s > HERE_S:
            return _ready_here(view, sight.unseen)
        if not any(alive) and sight.quiet_s > SILENCE_S:
            return End(NOT_KNOWN, _silence(run, sight.quiet_s))
        return None

    def _is_settled(self, sight: Sight, any_alive: bool) -> bool:
        now = time.monotonic()
        self._over_since = now if self._over_since is None else self._over_since
        if now - self._over_since > AT_MOST_S:
            return True
        return sight.quiet_s > SETTLE_S and not any_alive


def _ready_here(view: View, unseen: str) -> End:
    """End where all ranks that write here are up: the others write elsewhere, unless their files were not read."""
    up = "the rank that was read is up" if view.ranks == 1 else f"all {view.ranks} ranks that were read are up"
    count = (view.world or 0) - view.ranks
    others = "the other" if count == 1 else f"the {count} others" if count > 1 else "any others"
    if unseen:
        return End(NOT_KNOWN, f"{up}, but nothing is known of {others}: {unseen}; give the directory of the run")
    verb = "writes" if count == 1 else "write"
    return End(0, f"READY here: {up}; {others}{f' of {view.world}' if count > 0 else ''} {verb} elsewhere")


def _replicated(run: Run) -> int:
    """Return how many ranks there are in all where data-parallel replicas have worlds of their own; 0: they do not."""
    told = run.provenance.effective or {}
    sizes = [as_number(told.get(name)) or 1 for name in ("dp_size", "tp_size", "pp_size")]
    return 0 if told.get("enable_dp_attention") or sizes[0] <= 1 else int(math.prod(sizes))


def _silence(run: Run, quiet_s: float) -> str:
    see = "see whether the server still runs on its own host"
    what = "a log does not say" if run.source == "log" else "the processes cannot be asked from here"
    return f"nothing was written for {quiet_s / 60:.0f} minutes, and what became of it is not known: {what}; {see}"


def _end(output: Output, looks: Looks, sight: Sight, end: End) -> int:
    if sight.run is None or sight.timeline is None:
        text = f"{end.says}: no run began\n"
        output.end(text, {"outcome": None, "exit": end.code, "says": end.says})
        return end.code
    said = "; ".join(one for one in (end.says, sight.order if end.code == 1 else "") if one)
    end = End(end.code, said)
    why = explain(sight.timeline)
    output.end(_text(sight.timeline, why, looks, sight.now, end), _document(sight.run, why, sight.now, end))
    return end.code


def _text(timeline: Timeline, why: Explanation, looks: Looks, now: datetime, end: End) -> str:
    said = "".join(f"{printable(line.plain)}\n" for line in paragraph(end.says, looks.width)) if end.says else ""
    said += "\n" if said else ""
    return said + explain_text(why, timeline, looks.width, colour=looks.colour, now=now)


def _document(run: Run, why: Explanation, now: datetime, end: End) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "outcome": run.outcome,
        "exit": end.code,
        "says": end.says or headline(run, now),
        "explain": to_json(why),
    }


def _seconds(text: str) -> float:
    value = number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, such as 900")
    return value


def _interval(text: str) -> float:
    value = _seconds(text)
    if value < LEAST_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {LEAST_INTERVAL_S} seconds; take 0.5")
    if value > MOST_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_INTERVAL_S:g} seconds; take 0.5")
    return value
