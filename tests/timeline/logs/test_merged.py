"""A log and events of one run: one run, its figures checked, and what only the log knows added."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sglang_probe.timeline.model import Run, Step
from sglang_probe.timeline.processes import ranks_of
from tests.timeline.logs.making import HUNDREDTH
from tests.timeline.logs.pairs import (
    CAR,
    FIRST,
    LOGS,
    both_of,
    changed,
    check_of,
    events_of,
    later,
    name_of,
    of_rank,
    replaced,
    timeline_of,
    told_of,
)

EVENTS = CAR.with_suffix("")
GIB = 1 << 30


def without_rank(folder: Path, label: str) -> Path:
    """Copy the events of the car run but those of one rank."""
    copy = folder / "car"
    shutil.copytree(EVENTS, copy)
    pid = next(process.pid for process in events_of(CAR).processes if process.label == label)
    for file in copy.glob(f"*.{pid}.*.jsonl"):
        file.unlink()
    return copy


def steps_of(run: Run, label: str) -> tuple[Step, ...]:
    return next(process.steps for process in ranks_of(run) if process.label == label)


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_every_figure_and_argument_of_a_recorded_log_is_that_of_its_events(path: Path) -> None:
    run = both_of(path)
    check = check_of(run)

    assert "both" == run.source
    assert check.compared == check.agree > 0
    assert () == check.disagreements == check.explained
    assert check.arguments_compared > 300
    assert (events_of(path).outcome, events_of(path).failed_phase) == (run.outcome, run.failed_phase)


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_the_exact_figures_of_events_stand(path: Path) -> None:
    for before, after in zip(ranks_of(events_of(path)), ranks_of(both_of(path)), strict=True):
        for one, other in zip(before.steps, after.steps, strict=True):
            figures = (one.free_before_bytes, one.free_bytes, one.cost_bytes, one.precision_bytes)
            assert figures == (other.free_before_bytes, other.free_bytes, other.cost_bytes, other.precision_bytes)
        assert [worker.budget for worker in before.workers] == [worker.budget for worker in after.workers]


def test_what_the_distributed_init_took_is_the_logs_and_says_where_it_stands() -> None:
    init = next(step for step in steps_of(both_of(CAR), "TP0") if step.phase == "dist.init")

    assert init.cost_bytes is None
    assert round(1.01 * GIB) == init.attributes["log_cost_bytes"]
    assert HUNDREDTH == init.attributes["log_precision_bytes"]
    assert "car.log:16" == str(init.attributes["log_place"]).rsplit("/", 1)[-1]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("avail mem=134.03 GB, mem usage", "avail mem=134.23 GB, mem usage", "weights.load: free after it"),
        ("Memory pool end. avail mem=12.37", "Memory pool end. avail mem=13.37", "kv.pool: free after it"),
        ("#tokens: 3979547", "#tokens: 3979548", "kv.pool: tokens"),
        ("mem usage=0.06 GB, avail", "mem usage=0.16 GB, avail", "graph.capture decode: cost"),
        ("mem usage=1.01 GB", "mem usage=1.11 GB", "dist.init: cost"),
        ("max_running_requests=4096,", "max_running_requests=4095,", "requests in force"),
    ],
)
def test_a_figure_that_is_another_is_reported_with_both_values_and_its_line(
    old: str, new: str, what: str, tmp_path: Path
) -> None:
    (run,) = timeline_of(changed(tmp_path, CAR, replaced(old, new)), EVENTS).runs
    check = check_of(run)

    assert {what} == {one.what for one in check.disagreements}
    assert check.compared == check.agree + len(check.disagreements)
    for one in check.disagreements:
        assert one.log != one.event
        line = (tmp_path / "car.log").read_text().splitlines()[int(one.place.rpartition(":")[2]) - 1]
        assert new in line
        assert f" {one.label}]" in line


def test_a_figure_off_by_the_last_decimal_is_within_its_precision_or_told(tmp_path: Path) -> None:
    made = changed(tmp_path, CAR, replaced("begin. avail mem=138.28", "begin. avail mem=138.29"))
    (run,) = timeline_of(made, EVENTS).runs

    for one in check_of(run).disagreements:
        assert abs(int(one.difference or 0)) > int(one.precision or 0)
    assert 2 == len(check_of(run).disagreements)


def test_more_free_by_no_more_than_torchs_cache_has_that_reason(tmp_path: Path) -> None:
    """After the graphs torch keeps 0.094 GiB that it does not use: SGLang gives it back first where it empties it."""
    last = next(step for step in reversed(steps_of(events_of(CAR), "TP0")) if step.phase == "graph.capture")
    assert last.after is not None
    cached = (last.after.torch_reserved_bytes or 0) - (last.after.torch_allocated_bytes or 0)
    more = f"{((last.free_bytes or 0) + cached // 2) / GIB:.2f}"
    made = changed(tmp_path, CAR, replaced("GB, avail mem=12.22 GB.", f"GB, avail mem={more} GB."))
    (run,) = timeline_of(made, EVENTS).runs
    check = check_of(run)

    assert () == check.disagreements
    assert 2 == len(check.explained)
    assert all("torch's cached memory" in str(one.reason) for one in check.explained)


def test_an_argument_that_is_another_is_reported(tmp_path: Path) -> None:
    made = changed(tmp_path, CAR, replaced("mem_fraction_static=0.909", "mem_fraction_static=0.9"))
    (run,) = timeline_of(made, EVENTS).runs

    (one,) = check_of(run).disagreements
    assert ("argument mem_fraction_static", "0.909", "0.9") == (one.what, one.event, one.log)


def test_a_rank_that_wrote_no_events_is_the_logs(tmp_path: Path) -> None:
    (run,) = timeline_of(CAR, without_rank(tmp_path, "TP1")).runs
    rank = ranks_of(run)[1]

    assert ("both", ["TP0", "TP1"]) == (run.source, [process.label for process in ranks_of(run)])
    assert rank.steps == steps_of(told_of(CAR), "TP1")
    assert () == run.missing
    assert any("TP1 wrote no events" in note for note in run.notes)
    assert ("unknown", "ready") == (timeline_of(without_rank(tmp_path / "x", "TP1")).runs[0].outcome, run.outcome)


def test_phases_that_no_event_is_of_are_the_logs_with_its_precision(tmp_path: Path) -> None:
    copy = tmp_path / "car"
    shutil.copytree(EVENTS, copy)
    for file in copy.glob("*.jsonl"):
        lines = [line for line in file.read_text().splitlines(keepends=True) if '"role":"graph.capture"' not in line]
        file.write_text("".join(lines))
    (run,) = timeline_of(CAR, copy).runs

    for label in ("TP0", "TP1"):
        step = next(one for one in steps_of(run, label) if one.phase == "graph.capture")
        assert (round(0.06 * GIB), HUNDREDTH) == (step.cost_bytes, step.precision_bytes)
        assert "graph.capture" == steps_of(run, label)[-1].phase


def test_yesterdays_directory_and_todays_log_stay_two_runs_and_the_note_says_why(tmp_path: Path) -> None:
    events, log = timeline_of(changed(tmp_path, CAR, later(86400)), EVENTS).runs

    assert ("events", None, "log") == (events.source, events.log_check, log.source)
    assert events == events_of(CAR)
    assert any("not merged with events: it is not car's" in note for note in log.notes)


def test_each_log_goes_to_its_own_events() -> None:
    car, nocar = timeline_of(FIRST / "nocar.log", FIRST / "car", FIRST / "nocar", CAR).runs

    assert [("car", "both"), ("nocar", "both")] == [(run.run_id, run.source) for run in (car, nocar)]
    assert [["car.log"], ["nocar.log"]] == [
        [file.rsplit("/", 1)[-1] for file in check_of(run).files] for run in (car, nocar)
    ]


def test_a_log_of_each_node_is_taken_into_one_run(tmp_path: Path) -> None:
    parts = []
    for label, other in (("TP0", "TP1"), ("TP1", "TP0")):
        folder = tmp_path / label
        folder.mkdir()
        made = changed(folder, CAR, of_rank(other, kept=False))
        parts.append(made.rename(folder / f"{label}.log"))
    runs = timeline_of(*parts, EVENTS).runs
    whole = check_of(both_of(CAR))

    assert ["both"] == [run.source for run in runs]
    assert (whole.compared, whole.agree) == (check_of(runs[0]).compared, check_of(runs[0]).agree)


def test_the_same_log_twice_is_taken_once_or_each_says_why(tmp_path: Path) -> None:
    copy = changed(tmp_path, CAR, lambda text: text).rename(tmp_path / "copy.log")
    runs = timeline_of(CAR, copy, EVENTS).runs

    assert 1 == sum(run.source == "both" for run in runs)
    assert all("another log of the same ranks" in run.notes[-1] for run in runs if run.source == "log")
