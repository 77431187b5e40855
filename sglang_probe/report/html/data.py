"""Everything that the page shows, as one document of plain objects: what a script draws and nothing else.

Its bytes are those of `timeline --format json`, its sentences those of the terminal. Pure: the same timeline and
explanation give the same document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sglang_probe import __version__
from sglang_probe.explain.model import Explanation, RunFindings
from sglang_probe.report.header import run_name
from sglang_probe.report.html import facts
from sglang_probe.report.html.heat import heat_data
from sglang_probe.report.html.memory import Names, memory_data, stacked
from sglang_probe.report.html.waterfall import worker_data
from sglang_probe.report.ledger import pre_load_lines
from sglang_probe.report.outcome import process_name
from sglang_probe.report.palette import LOOKS
from sglang_probe.report.pick import pick
from sglang_probe.report.rank import failure_lines, failures
from sglang_probe.report.series import IN_USE, NOT_TOLD, RunClock
from sglang_probe.timeline.ledger_rows import NAMES
from sglang_probe.timeline.model import Process, Run, Timeline
from sglang_probe.timeline.processes import is_cpu, last_ledger, ranks_of

SCHEMA: Final = "page/1.0"
INDENT: Final = "  "


def page_data(
    timeline: Timeline,
    explanation: Explanation,
    where: Sequence[Sequence[str]] = (),
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return the document of a page about every run of a timeline; `where` and `now` as `timeline_text` takes them."""
    launches = Counter(run.run_id for run in timeline.runs)
    runs = []
    for place, (run, found) in enumerate(zip(timeline.runs, explanation.runs, strict=True)):
        several = run.launch > 0 or launches[run.run_id] > 1
        runs.append(run_data(run, found, where[place] if place < len(where) else (), now, several=several))
    return document(runs, facts.read_data(timeline.read))


def document(runs: list[dict[str, Any]], read: list[str], diff: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a document, in which every text is safe to show."""
    whole = {
        "schema": SCHEMA,
        "version": __version__,
        "categories": {**NAMES, IN_USE: NOT_TOLD},
        "looks": LOOKS,
        "process_columns": facts.PROCESS,
        "neighbour_columns": facts.NEIGHBOUR,
        "runs": runs,
        "read": read,
        "diff": diff,
    }
    cleaned: dict[str, Any] = facts.cleaned(whole)
    return cleaned


def run_data(
    run: Run, found: RunFindings, where: Sequence[str], now: datetime | None, *, several: bool = False
) -> dict[str, Any]:
    """Return everything about one run."""
    clock, names, keys = RunClock(run), Names(), stacked(run)
    ranks = ranks_of(run)
    drawn = [rank_data(run, process, clock, keys, names) for process in ranks]
    picked = pick(run, found.findings)
    return {
        "name": run_name(run, several),
        "ended": run.outcome,
        "source": run.source,
        "head": facts.head_data(run, where, now, several=several),
        "findings": facts.findings_data(run, found),
        "keys": keys,
        "names": names.all,
        "ranks": drawn,
        "picked": 0 if picked is None else next(place for place, one in enumerate(ranks) if one is picked.process),
        "picked_why": None if picked is None else picked.why,
        "heat": heat_data(run),
        "processes": facts.processes_data(run),
        "neighbours": facts.neighbours_data(run),
        "provenance": facts.provenance_data(run.provenance),
        "differs": facts.differs_data(run.provenance),
        "gaps": facts.gaps_data(run),
    }


def rank_data(run: Run, process: Process, clock: RunClock, keys: Sequence[str], names: Names) -> dict[str, Any]:
    """Return everything about one rank."""
    device = process.device
    step = last_ledger(process)
    return {
        "label": process_name(process),
        "host": process.host,
        "pid": process.pid,
        "device": None if device is None else device.index,
        "card": None if device is None else device.name,
        "cpu": is_cpu(process),
        "total": None if device is None else device.total_bytes,
        "source": None if step is None else step.ledger_total_source,
        "memory": memory_data(run, process, clock, keys, names),
        "workers": [worker_data(process, worker) for worker in process.workers],
        "pre_load": facts.plain_lines(pre_load_lines(process, facts.ENDLESS, INDENT), len(INDENT)),
        "failures": [
            facts.plain_lines(failure_lines(failure, facts.ENDLESS), 0) for failure in failures(process.steps)
        ],
    }
