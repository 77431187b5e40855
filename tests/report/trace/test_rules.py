"""Every trace keeps the format's rules, whatever it is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sglang_probe.report.material import Material
from sglang_probe.report.trace import write
from sglang_probe.timeline.model import Device, Failure, Process, Step
from tests.report.reported import CAR, HEALTHY_LOG, HOSTILE, LOWFRAC, RECORDINGS, made, reported, spoiled
from tests.report.trace.checker import Trace
from tests.report.trace.tracing import at, stamp, traced
from tests.timeline.building import build_rank, build_run, build_step


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_recorded_run_gives_a_trace_that_keeps_the_rules(recording: Path) -> None:
    report = reported(recording)

    found = traced(report)

    timed = [step for process in report.run.processes for step in process.steps if step.ts or step.local_time]
    drawn = [event for event in found.of("X") if event["cat"] not in {"run", "process"}]
    assert len(timed) == len(drawn)


def test_what_is_written_is_what_was_checked(tmp_path: Path) -> None:
    report = reported(CAR)
    path = tmp_path / "run.trace.json"

    write(Material(report.timeline, report.explanation, None), path)  # type: ignore[arg-type] # a trace needs no records

    assert traced(report).document == json.loads(path.read_text(encoding="utf-8"))
    assert all(32 <= ord(character) < 0xD800 or character == "\n" for character in path.read_text(encoding="utf-8"))


def test_several_runs_keep_the_rules_and_begin_together() -> None:
    found = traced(reported(CAR, LOWFRAC, HEALTHY_LOG))

    begins = [event["ts"] for event in found.of("X") if event["cat"] == "run"]
    assert [0, 0, 0] == begins


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_in_any_field_of_an_event_breaks_a_rule(data: st.DataObject) -> None:
    traced(spoiled(data))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_from_outside_breaks_no_rule(name: str) -> None:
    told = Failure(id="e1", type=name, message=name, raised_in=name)
    failed = build_step("kv.pool all", 0, 9.0, 8.0, 1.0, **at(0), state="error", failure=told, worker=name)
    step = replace(failed, phase=name, detail=name, null_reason=name, state_reason=name)
    device = Device(index=0, uuid=name, name=name, kind=name)
    process = replace(build_rank(0, 1, (step,), label=name, device=device), host=name)
    other = Process(host=name, pid=7, role=name, first_ts=stamp(0), last_ts=stamp(1))

    traced(made(build_run((other, process), "failed", run_id=name, failed_label=name, failed_phase=name)))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.none() | st.integers(0, 20),
        st.none() | st.floats(0, 20),
        st.sampled_from(["ok", "error", "died", "interrupted", "open"]),
    ),
    max_size=12,
)
"""Depth, second of its begin, duration, state."""
AnyStep = tuple[int, int | None, float | None, str]


@given(STEPS, st.sampled_from(["ready", "failed", "died", "unknown", "starting"]))
@settings(max_examples=300, deadline=None)
def test_steps_at_any_times_of_any_length_nest(steps: list[AnyStep], outcome: str) -> None:
    found: list[Step] = []
    for position, (depth, begin, duration, state) in enumerate(steps):
        deepest = found[-1].depth + 1 if found else 0
        when = {} if begin is None else at(begin)
        one = build_step("kv.pool all", min(depth, deepest), 9.0, 8.0, duration, state=state, **when)
        found.append(replace(one, id=str(position)))

    traced(made(build_run((build_rank(0, 1, tuple(found)),), outcome)))


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.none() | st.integers(-1, 1 << 40)), max_size=6))
@settings(deadline=None)
def test_processes_with_any_pids_have_numbers_of_their_own(pids: list[tuple[str | None, int | None]]) -> None:
    processes = [
        replace(build_rank(position, len(pids), (begun(),)), host=host, pid=pid)
        for position, (host, pid) in enumerate(pids)
    ]

    found = traced(made(build_run(tuple(processes), "ready")))

    assert len(pids) + 1 == len(found.processes())


def test_a_run_without_anything_is_a_trace_too() -> None:
    assert ["run 20261129T184500Z-3fa9c1: UNKNOWN"] == list(traced(made(build_run((), "unknown"))).processes().values())


def test_the_checker_refuses_what_it_is_there_for() -> None:
    """A checker that lets all pass holds nothing."""
    good = traced(reported(CAR)).document
    first = next(event for event in good["traceEvents"] if event["ph"] == "X" and event["name"].startswith("scheduler"))
    ends = [event for event in good["traceEvents"] if event["ph"] == "f"]
    counter = next(event for event in good["traceEvents"] if event["ph"] == "C")
    for broken in (
        [{**event, "dur": 1e6} if event is first else event for event in good["traceEvents"]],
        [event for event in good["traceEvents"] if event is not ends[0]],
        [{**event, "ts": 1e12} if event is ends[-1] else event for event in good["traceEvents"]],
        [{**event, "args": {"free": "1"}} if event is counter else event for event in good["traceEvents"]],
        [event for event in good["traceEvents"] if event["name"] != "process_name"],
        [{**event, "pid": 0, "tid": 0} if event is first else event for event in good["traceEvents"]],
    ):
        with pytest.raises(AssertionError):
            Trace(json.dumps({**good, "traceEvents": broken}))
    with pytest.raises(AssertionError, match="no JSON"):
        Trace(json.dumps({**good, "otherData": float("nan")}))


def test_two_hosts_with_the_same_pid_get_numbers_of_ours_and_keep_the_real_one_in_their_names() -> None:
    ranks = [replace(build_rank(position, 2, (begun(),)), host=f"node-{position}", pid=4711) for position in range(2)]

    names = traced(made(build_run(tuple(ranks), "ready"))).processes()

    assert 4711 not in names
    assert ["TP0 (node-0, pid 4711)", "TP1 (node-1, pid 4711)"] == list(names.values())[1:]


def begun() -> Step:
    return build_step("scheduler.init", 0, None, None, 1.0, **at(1))
