"""The headline of a run: how it ended, on whom, and with which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sglang_probe.explain.feasible import shown_minimum
from sglang_probe.explain.subject import Subject, errors_by_id
from sglang_probe.figures import counted, exception_type
from sglang_probe.report.budget import worked
from sglang_probe.report.plain import printable
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import world_size


def headline(run: Run, now: datetime | None = None) -> str:
    """Return the outcome in one line; `now` tells for how long a start has been silent."""
    if run.outcome == "ready":
        return _ready(run)
    if run.outcome == "failed":
        return _failed(run)
    if run.outcome == "starting":
        return _starting(run, now)
    where = f" in {run.failed_phase}" if run.failed_phase else ""
    reason = run.outcome_reason or ""
    named = not run.failed_label or reason.startswith(f"{run.failed_label} is gone")
    who = "" if named else f" on {run.failed_label}"
    return f"{run.outcome.upper()}{where}{who}{f': {reason}' if reason else ''}"


def why(run: Run) -> str | None:
    """Return the budget that left nothing, with its numbers: the tightest rank's; None where none is to blame.

    Worked example: rest = 21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB on TP5, the tightest.
    """
    subject = Subject(run)
    tight, found = subject.tightest, subject.negative
    if tight is None or not subject.budget_failed:
        return None
    least = [seat for seat in found if seat.available == tight.available]
    who = process_name(tight.process) if len(least) == 1 else f"{counted(len(least), 'rank')} alike"
    tightest = ", the tightest" if len(least) < len(found) and tight.is_least else ""
    return f"rest = {worked(tight.budget)} on {who}{tightest}; minimum viable fraction {shown_minimum(tight.budget)}"


def process_name(process: Process) -> str:
    """Return the rank's label, or what else the process is."""
    return printable(process.label or process.role)


def _ready(run: Run) -> str:
    if run.source == "log" and run.later:
        return _ready_in_a_log(run)
    after = f" after {run.ready_s:.1f} s" if run.ready_s is not None else ""
    gone = [process for process in run.processes if process.alive is False]
    if not gone:
        return f"READY{after}"
    if len(gone) == len(run.processes):
        errors = any(later.kind == "error" for later in run.later)
        recorded = "see what came later" if errors else "no error was recorded: stopped or killed, both look like this"
        they = "its one process is gone" if len(gone) == 1 else f"all {len(gone)} processes are gone"
        return f"READY{after}, now ended: {they} ({recorded})"
    running = [process for process in run.processes if process.alive]
    run_on = "still run" if len(running) > 1 else "still runs"
    still = f"; {_named(running)} {run_on}" if running else ""
    return f"READY{after}, but {_named(gone)} {'is' if len(gone) == 1 else 'are'} gone{still}"


def _ready_in_a_log(run: Run) -> str:
    """Say what came after a server was ready, as its log has it: an error, or how it ended."""
    first = run.later[0]
    who = f" on {printable(first.label)}" if first.label else ""
    joint = ", then ended: " if first.kind == "gone" else "; later "
    return f"READY{joint}{printable(first.what)}{who}"


def _named(processes: Sequence[Process]) -> str:
    return named([process_name(process) for process in processes])


def _failed(run: Run) -> str:
    where = f" in {run.failed_phase}" if run.failed_phase else ""
    negative = Subject(run).negative if run.failed_phase == "kv.profile" else ()
    if negative:
        alike = [seat.process for seat in negative]
        below = all(seat.budget.rest_bytes is None or seat.budget.rest_bytes < 0 for seat in negative)
        what = "the budget is negative" if below else "the budget leaves no room for a token"
        raised = _raised_in(run)
        reason = f": {what}" + (f"; SGLang raised in {raised}" if raised not in {None, run.failed_phase} else "")
    else:
        alike = [p for p in run.processes if any(step.phase == run.failed_phase for step in errors_by_id(p))]
        reason = ""
        if run.lost_peer:
            reason = ": the first error reports a lost peer, and no process here fell silent before it"
        elif run.source == "log" and not run.failed_phase and not run.failed_label and _says_more(run):
            reason = f": {printable(run.outcome_reason or '')}"
        elif not run.failed_phase and not run.failed_label and not alike and run.failure is not None:
            reason = f": {printable(exception_type(run.failure.type))}; where and on which rank was not recorded"
    return f"FAILED{where}{_on(run, alike)}{reason}"


def _says_more(run: Run) -> bool:
    """Say whether the reason says more than the error does."""
    kind = None if run.failure is None else run.failure.type
    return run.outcome_reason not in {None, "", kind, "an error"}


def _on(run: Run, alike: Sequence[Process]) -> str:
    """Say how many ranks failed alike: which of them came first is chance."""
    size = world_size(run)
    if len(alike) < 2:
        who = process_name(alike[0]) if alike else run.failed_label
        return f" on {who}" if who else ""
    if len(alike) == size:
        return " on both ranks" if size == 2 else f" on all {size} ranks"
    return f" on {len(alike)} of {size} ranks"


def _raised_in(run: Run) -> str | None:
    """Return the innermost phase that the first error passed."""
    known = None if run.failure is None else run.failure.id
    for process in run.processes:
        if process.label == run.failed_label:
            for step in errors_by_id(process):
                if known is None or (step.failure is not None and step.failure.id == known):
                    return step.phase
    return None


def _starting(run: Run, now: datetime | None) -> str:
    running = [process for process in run.processes if process.alive]
    groups: dict[str, list[str]] = {}
    for process in running:
        if process.label is not None:
            groups.setdefault(_open_phase(process), []).append(printable(process.label))
    where = "; ".join(f"{phase} on {named(who)}" for phase, who in groups.items())
    where = where or f"no rank yet; {_named(running)} {'still run' if len(running) > 1 else 'still runs'}"
    return f"STARTING: {where}{_silence(running, now)}"


def _open_phase(process: Process) -> str:
    unfinished = [step for step in process.steps if step.state == "open"]
    if unfinished:
        return f"in {max(unfinished, key=lambda step: step.depth).phase}"
    done = [step for step in process.steps if step.phase == "scheduler.init" and step.state == "ok"]
    return "ready" if done else "between steps" if process.steps else "before its first step"


def _silence(running: Sequence[Process], now: datetime | None) -> str:
    """Say for how long none of the processes that run wrote; nothing where a time is no timestamp of ours."""
    try:
        last = max(datetime.fromisoformat(f"{(process.last_ts or '').rstrip('Z')[:26]}+00:00") for process in running)
        return "" if now is None else f"; last event {max((now - last).total_seconds(), 0):.1f} s ago"
    except (ValueError, TypeError):
        return ""
