"""One clock for a run: when each step began and ended, and what the device's memory was spent on then."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.read import read
from sglang_probe.report.series import RunClock, categories, moments, nanoseconds
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run, Skew
from sglang_probe.timeline.processes import ranks_of
from tests.timeline.building import build_rank, build_run, build_step

DATA = Path(__file__).parents[1] / "data"
RECORDED = [DATA / "h200-x2-sglang-0.5.14" / "car", DATA / "cases" / "healthy_tp8.log"]


def run_of(path: Path) -> Run:
    return build(read([path]), alive=lambda _: None).runs[0]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_no_step_begins_before_the_run_and_none_ends_before_it_begins(path: Path) -> None:
    run = run_of(path)
    clock = RunClock(run)
    times = [
        (clock.begin_s(process, step), clock.end_s(process, step))
        for process in run.processes
        for step in process.steps
    ]

    assert any(begin is not None for begin, _ in times)
    for begin, end in times:
        assert begin is None or begin >= 0
        assert end is None or (begin is not None and end >= begin)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_the_moments_of_a_rank_are_in_order_and_its_root_comes_last(path: Path) -> None:
    run = run_of(path)
    clock = RunClock(run)

    for process in ranks_of(run):
        found = moments(process, clock)
        assert [moment.at_s for moment in found] == sorted(moment.at_s for moment in found)
        assert found[-1].step.phase == "scheduler.init"


def test_the_categories_of_a_run_are_those_that_ever_held_anything() -> None:
    run = run_of(RECORDED[0])
    ledgers = [step.ledger for process in run.processes for step in process.steps if step.ledger is not None]

    named = categories(run)

    assert "kv_pool" in named and "weights_draft" not in named
    for key in named:
        assert any(getattr(ledger, key) for ledger in ledgers)


def test_a_clock_that_is_ahead_is_set_back() -> None:
    steps = (build_step("weights.load", 0, 90.0, 20.0, 5.0, ts="2026-11-29T18:45:02.500000000Z"),)
    there = build_rank(1, 2, steps)
    run = build_run((build_rank(0, 2, steps), there), "ready", started="2026-11-29T18:45:00.000000000Z")
    skew = Skew(host="node-b", against="node-a", seconds=2.25)
    elsewhere = msgspec.structs.replace(there, host="node-b")
    other = build_run((run.processes[0], elsewhere), "ready", started=run.started, skew=(skew,))

    assert RunClock(run).begin_s(there, steps[0]) == 2.5
    assert RunClock(other).begin_s(other.processes[1], steps[0]) == 0.25
    assert RunClock(other).begin_s(other.processes[0], steps[0]) == 2.5


@given(st.integers(0, 10**11), st.integers(0, 999_999_999))
def test_every_nanosecond_of_a_stamp_is_kept(second: int, ns: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second)

    assert nanoseconds(f"{moment.replace(tzinfo=None).isoformat()}.{ns:09d}Z") == second * 10**9 + ns


@given(st.text())
def test_what_is_no_time_is_none_or_a_number_and_never_an_error(text: str) -> None:
    found = nanoseconds(text)

    assert found is None or isinstance(found, int)
