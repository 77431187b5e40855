"""The recorded logs say what the events of the same runs say, as far as they hold it: never a cause that contradicts.

A log lists no processes: where a tenant, another server or a stray context leads by the events, the log may only say
less. Its figures must be those of the events within what they are good to.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.explain.model import Finding, RunFindings
from sglang_probe.timeline import build
from sglang_probe.timeline.arithmetic import estimate_of

DATA = Path(__file__).resolve().parents[2] / "data"
LOGS = sorted(path for path in DATA.glob("h200-*/*.log") if path.with_suffix("").is_dir())
NEEDS_LISTS = {"shared_device", "stray_context", "two_servers", "foreign_tenant", "unlisted_memory", "left_over"}
"""Rules that lean on lists of processes."""
COMPARED = (
    "pre_load_bytes", "available_bytes", "static_budget_bytes", "slack_bytes", "rest_bytes", "wanted_bytes",
    "free_said_bytes", "process_bytes", "outside_torch_bytes", "mem_fraction_static", "minimum_viable_fraction_printed",
)  # fmt: skip
FEW = 1 << 20
"""SGLang's own floats, printed, may round the other way."""
LOST_TO_A_PEER = "sigkill"
"""The log has only the peer's error: that a process was killed stands in no line."""


@cache
def explained(path: Path) -> RunFindings:
    (run,) = explain(build(read([str(path)]))).runs
    return run


def causes(run: RunFindings) -> list[Finding]:
    return [one for one in run.findings if one.severity == "error"]


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("log", LOGS, ids=name_of)
def test_a_log_ends_as_the_events_do(log: Path) -> None:
    of_log, of_events = explained(log), explained(log.with_suffix(""))

    expected = "failed" if log.stem == LOST_TO_A_PEER else of_events.outcome
    assert (expected, of_events.failed_phase) == (of_log.outcome, of_log.failed_phase)


@pytest.mark.parametrize("log", LOGS, ids=name_of)
def test_a_log_names_a_cause_where_the_events_do_and_no_other_one(log: Path) -> None:
    of_log, of_events = causes(explained(log)), causes(explained(log.with_suffix("")))

    assert bool(of_events) == bool(of_log)
    rules = {one.rule for one in of_events}
    assert {one.rule for one in of_log} <= rules | ({"rank_spread"} if rules & NEEDS_LISTS else set())
    told_apart = [one.rule for one in of_events if one.rule not in NEEDS_LISTS]
    assert told_apart == [one.rule for one in of_log if one.rule in told_apart]


@pytest.mark.parametrize("log", LOGS, ids=name_of)
def test_the_figures_of_a_finding_are_those_of_the_events_within_their_precision(log: Path) -> None:
    for one in causes(explained(log)):
        for other in causes(explained(log.with_suffix(""))):
            if one.rule == other.rule:
                off = max(one.numbers.get("precision_bytes") or 0, FEW)
                apart = {key: (one.numbers.get(key), other.numbers.get(key)) for key in COMPARED
                         if _apart(one.numbers.get(key), other.numbers.get(key), off)}  # fmt: skip
                assert {} == apart


@pytest.mark.parametrize("log", [log for log in LOGS if explained(log).outcome == "ready"], ids=name_of)
def test_tokens_are_the_same_and_a_token_s_bytes_are_those_of_the_events_as_printed(log: Path) -> None:
    of_log, of_events = (
        next(one for one in explained(path).findings if one.rule == "kv_cache") for path in (log, log.with_suffix(""))
    )

    assert of_events.numbers["tokens"] == of_log.numbers["tokens"]
    assert of_events.numbers["bytes_per_token"] == pytest.approx(of_log.numbers["bytes_per_token"], rel=1e-3)
    assert of_events.numbers["limited_by"] == of_log.numbers["limited_by"]


@pytest.mark.parametrize("log", [log for log in LOGS if explained(log).outcome == "ready"], ids=name_of)
def test_the_pre_load_memory_is_the_measured_one_and_the_implied_one_is_said_where_it_differs(log: Path) -> None:
    found = [one for one in explained(log).findings if one.rule == "implied_pre_load"]
    (timeline,) = build(read([str(log.with_suffix(""))])).runs
    measured = {worker.budget.pre_load_bytes for process in timeline.processes for worker in process.workers
                if worker.budget is not None and worker.budget.pre_load_bytes is not None}  # fmt: skip

    for one in found:
        assert all(abs(one.numbers["pre_load_bytes"] - size) <= one.numbers["precision_bytes"] for size in measured)
    if not found:
        (run,) = build(read([str(log)])).runs
        budgets = [worker.budget for process in run.processes for worker in process.workers if worker.budget]
        off = [(estimate_of(one), abs((one.pre_load_bytes or 0) - size)) for one in budgets for size in measured]
        assert off and all(good is not None and apart <= good for good, apart in off)


def _apart(mine: Any, theirs: Any, off: int) -> bool:
    if mine is None or theirs is None:
        return False
    return bool(abs(mine - theirs) > (off if isinstance(theirs, int) else 1e-9))
