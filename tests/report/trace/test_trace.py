"""What a trace shows: each rank's steps, its memory, its errors, who started it, and what was found."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from sglang_probe.figures import gib
from sglang_probe.report.series import RunClock, categories, moments
from sglang_probe.report.trace.document import trace
from sglang_probe.timeline.model import Device, Ledger, Process, Timeline
from sglang_probe.timeline.processes import first_error, last_ledger, ranks_of
from tests.report.reported import CAR, HEALTHY_LOG, LEFT_OVER, LOWFRAC, SIGKILL, made, reported
from tests.report.trace.checker import Event, nanoseconds
from tests.report.trace.tracing import at, stamp, traced
from tests.timeline.building import build_rank, build_run, build_step

SECOND = 10**9


def test_each_rank_is_a_process_behind_the_run_and_its_launcher() -> None:
    names = list(traced(reported(CAR)).processes().values())

    assert ["run car: READY after 122.8 s", "launcher (gpu-host, pid 567)"] == names[:2]
    assert ["TP0 (gpu-host, pid 720)", "TP1 (gpu-host, pid 721)"] == names[2:4]
    assert names[4].startswith("detokenizer (gpu-host, pid ")


def test_a_slice_is_where_and_as_long_as_its_step_and_tells_its_cost() -> None:
    report = reported(CAR)
    found = traced(report)
    clock = RunClock(report.run)

    for process in ranks_of(report.run):
        assert process.pid is not None
        drawn = found.slices[process.pid, process.pid]
        assert len(process.steps) == len(drawn)
        for step, event in zip(process.steps, drawn, strict=True):
            begin, end = nanoseconds(event)
            expected = clock.begin_s(process, step), clock.end_s(process, step)
            assert pytest.approx(expected, abs=2e-9) == (begin / SECOND, end / SECOND)
            assert (step.phase, step.state) == (event["cat"], event["args"]["state"])
            assert step.cost_bytes == event["args"].get("cost_bytes")
            assert step.duration_s == event["args"]["duration_s"]
            assert "drawn" not in event["args"]


@pytest.mark.parametrize("recording", [CAR, LOWFRAC, LEFT_OVER, HEALTHY_LOG], ids=lambda path: str(path.name))
def test_the_last_counters_are_the_ledger_at_the_end(recording: Path) -> None:
    report = reported(recording)
    found = traced(report)

    for process in ranks_of(report.run):
        step = last_ledger(process)
        assert step is not None and step.ledger is not None
        known = {key: held for key in categories(report.run) if (held := getattr(step.ledger, key)) is not None}
        number = found.number(process.label or "")
        (*_, last) = [event for event in found.of("C") if event["pid"] == number]
        assert known == last["args"]
        assert "free" in last["args"]


def test_counters_of_one_moment_sum_to_the_total_of_the_card() -> None:
    report = reported(CAR)
    found = traced(report)

    for process in ranks_of(report.run):
        samples = [event["args"] for event in found.of("C") if event["pid"] == process.pid]
        totals = {moment.total_bytes for moment in moments(process, RunClock(report.run))}
        # Before the context was measured a row is unknown, and what it holds is in `unexplained`.
        assert totals == {sum(values.values()) for values in samples}


def test_memory_that_did_not_change_is_not_written_again() -> None:
    for_each: dict[int, list[dict[str, int]]] = {}
    for event in traced(reported(CAR)).of("C"):
        for_each.setdefault(event["pid"], []).append(event["args"])

    for samples in for_each.values():
        assert all(before != after for before, after in pairwise(samples))


def test_an_arrow_leads_from_the_launcher_to_the_root_of_each_rank() -> None:
    report = reported(CAR)
    found = traced(report)

    launcher = found.number("launcher")
    assert {launcher} == {event["pid"] for event in found.of("s")}
    ends = {event["pid"]: event["ts"] for event in found.of("f")}
    roots = {rank.pid: found.slices[rank.pid or 0, rank.pid or 0][0]["ts"] for rank in ranks_of(report.run)}
    assert roots == ends


def test_without_a_launcher_an_arrow_leads_from_the_run() -> None:
    found = traced(reported(HEALTHY_LOG))

    assert {found.number("run healthy_tp8.log")} == {event["pid"] for event in found.of("s")}
    assert 8 == len(found.of("f"))


def test_an_error_is_a_moment_on_its_rank_with_its_message_once() -> None:
    found = traced(reported(LOWFRAC))

    errors = [event for event in found.of("i") if event["cat"] == "error"]
    assert sorted(found.number(label) for label in ("TP0", "TP1")) == sorted(event["pid"] for event in errors)
    raised = reported(LOWFRAC).run.failure
    assert raised is not None
    for error in errors:
        assert first_error(raised)[:40] == error["name"][:40]
        assert "Loaded weights leave no GPU memory" in error["args"]["error"]
        assert "kv.profile" == error["args"]["phase"]
        raising = [event for event in found.slices[error["pid"], error["tid"]] if event["cat"] == "kv.profile"]
        assert [nanoseconds(event)[1] for event in raising] == [round(error["ts"] * 1000)]


def test_each_finding_is_a_moment_on_a_row_of_the_run_that_is_named_for_it() -> None:
    report = reported(LOWFRAC)
    found = traced(report)
    (explained,) = report.explanation.runs

    rows = [event for event in found.of("i") if event["cat"] == "finding"]
    titles = {(one["pid"], one["tid"]): one["args"]["name"] for one in found.of("M") if one["name"] == "thread_name"}
    assert [finding.rule for finding in explained.findings] == [event["name"] for event in rows]
    assert "error: weights_exceed_budget" == titles[rows[0]["pid"], rows[0]["tid"]]
    assert explained.findings[0].says == rows[0]["args"]["says"]


def test_a_step_that_never_ended_is_drawn_until_the_last_that_is_known_and_says_so() -> None:
    report = reported(SIGKILL)
    assert "died" == report.run.outcome
    found = traced(report)
    whole = next(event for event in found.of("X") if event["cat"] == "run")

    unfinished = [event for event in found.of("X") if event["args"].get("state") in {"died", "interrupted", "open"}]
    states = [step.state for process in report.run.processes for step in process.steps]
    assert sum(state in {"died", "interrupted", "open"} for state in states) == len(unfinished) > 0
    for event in unfinished:
        assert nanoseconds(whole)[1] == nanoseconds(event)[1]
        assert "drawn until the last time that is known" in event["args"]["drawn"]


def test_a_step_of_a_start_that_still_runs_is_drawn_until_now() -> None:
    steps = (build_step("scheduler.init", 0, 9.0, None, None, state="open", **at(1)),)
    run = build_run((build_rank(0, 1, steps, alive=True),), "starting", started=stamp(0), ended=stamp(1))
    report = made(run)
    now = datetime(2026, 11, 29, 18, 46, tzinfo=timezone.utc)

    events: list[Event] = trace(report.timeline, report.explanation, now)["traceEvents"]

    (root,) = [event for event in events if event["ph"] == "X" and event["cat"] == "scheduler.init"]
    assert timedelta(seconds=59) == timedelta(microseconds=root["dur"])


def test_outermost_steps_at_one_time_have_tracks_of_their_own() -> None:
    steps = tuple(
        replace(build_step("weights.load", 0, 9.0, 8.0, 5.0, **at(second)), id=str(second)) for second in (0, 2, 6)
    )

    found = traced(made(build_run((build_rank(0, 1, steps),), "ready")))

    tracks = [len(events) for (pid, _), events in found.slices.items() if pid == 4711]
    assert [1, 2] == sorted(tracks)


def test_a_step_that_reaches_out_of_the_one_around_it_is_cut_and_says_so() -> None:
    outer = build_step("scheduler.init", 0, 9.0, 8.0, 5.0, **at(0))
    inner = build_step("weights.load", 1, 9.0, 8.0, 9.0, **at(1))

    found = traced(made(build_run((build_rank(0, 1, (outer, inner)),), "ready", started=stamp(0))))

    cut = found.slices[4711, 4711][1]
    assert (SECOND, 5 * SECOND) == nanoseconds(cut)
    assert "cut to fit: by its own clock from 1.000 s to 10.000 s" == cut["args"]["drawn"]
    assert 9.0 == cut["args"]["duration_s"]


def test_what_is_unknown_is_no_counter() -> None:
    ledger = Ledger(kv_pool=5, graphs=None, free=3)
    steps = (build_step("scheduler.init", 0, None, None, 1.0, ledger=ledger, **at(0)),)

    (sample,) = traced(made(build_run((build_rank(0, 1, steps),), "ready"))).of("C")

    assert {"kv_pool": 5, "free": 3} == sample["args"]


def test_a_rank_without_a_ledger_has_what_was_free() -> None:
    device = Device(index=0, kind="cpu")
    steps = (build_step("scheduler.init", 0, 9.0, 8.0, 1.0, **at(0)),)

    samples = traced(made(build_run((build_rank(0, 1, steps, device=device),), "ready"))).of("C")

    assert [9 << 30, 8 << 30] == [event["args"]["free"] for event in samples]
    assert {"free (bytes)"} == {event["name"] for event in samples}


def test_what_came_after_a_ready_start_is_a_moment_of_the_run(ready: Timeline) -> None:
    (run,) = ready.runs
    assert run.later

    found = traced(made(run))

    titles = [event["name"] for event in found.of("i") if event["cat"] == "later"]
    assert [f"later: {one.what}" for one in run.later if one.ts is not None] == titles


def test_a_process_without_steps_is_drawn_from_its_first_event_to_its_last() -> None:
    launcher = Process(host="node-a", pid=1, role="launcher", first_ts=stamp(2), last_ts=stamp(7), events=3)

    found = traced(made(build_run((launcher,), "unknown", started=stamp(0), ended=stamp(7))))

    (life,) = found.slices[1, 1]
    assert (2 * SECOND, 7 * SECOND) == nanoseconds(life)


def test_steps_without_any_time_are_counted_instead_of_drawn() -> None:
    steps = (build_step("scheduler.init", 0, 9.0, 8.0, 1.0), build_step("weights.load", 1, 9.0, 8.0, 1.0))
    run = build_run((build_rank(0, 1, steps),), "ready")

    found = traced(made(run))

    assert [] == [event for event in found.of("X") if event["cat"] != "run"]
    assert found.document["otherData"][run.run_id].endswith("steps without a time, not drawn: 2")


def test_names_of_several_runs_begin_with_the_run() -> None:
    names = traced(reported(CAR, LOWFRAC)).processes().values()

    assert 1 == sum(name.startswith("car: TP0 ") for name in names)
    assert 1 == sum(name.startswith("lowfrac: TP0 ") for name in names)


def test_the_worked_look_of_the_documentation_has_the_figures_of_the_recording() -> None:
    docs = " ".join((Path(__file__).parents[3] / "docs" / "trace.md").read_text(encoding="utf-8").split())
    run = reported(CAR).run
    steps = {(step.phase, step.detail): step for step in ranks_of(run)[0].steps}

    assert f"was ready after {run.ready_s:.1f} s" in docs
    for phase, detail, words in (
        ("graph.capture", "decode", "with {s} s and a `cost` of {cost} GiB"),
        ("allreduce.buffers", "CustomAllReduceV2", "takes {s} s for {cost} GiB"),
        ("weights.load", "LlamaForCausalLM", "took only {s} s for {cost} GiB"),
    ):
        step = steps[phase, detail]
        assert words.format(s=f"{step.duration_s:.1f}", cost=gib(step.cost_bytes)) in docs
    ledger = steps["kv.pool", "all"].ledger
    assert ledger is not None and f"`kv_pool` steps up by {gib(ledger.kv_pool)} GiB" in docs
    assert f"and `dist.init` with {steps['dist.init', None].duration_s:.1f} s" in docs
