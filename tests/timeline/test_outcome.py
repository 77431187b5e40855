"""The outcome of a run and the phase it failed in."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import pytest

from sglang_probe.timeline import ProcessId
from tests.collect.building import GIB, Host, Raised, Writer
from tests.collect.starting import Shape, launch, rank_of
from tests.timeline.making import gone, gone_but, run_of, unknowable


def test_a_run_is_ready_when_every_rank_ended_its_init() -> None:
    run = run_of(launch([Shape(), Shape()]))

    assert ("ready", None) == (run.outcome, run.failed_phase)
    assert () == run.later


def test_a_run_with_a_rank_that_wrote_nothing_is_not_ready() -> None:
    launcher, first, _ = launch([Shape(), Shape()])

    run = run_of([launcher, first])

    assert "unknown" == run.outcome
    assert [(1, 2)] == [(missing.world_rank, missing.world_size) for missing in run.missing]


def test_a_run_is_ready_when_every_world_seen_is() -> None:
    launcher, *first = launch([Shape()], method="tcp://127.0.0.1:1")
    _, *second = launch([Shape(stop_in="weights.load")], first_pid=4300, method="tcp://127.0.0.1:2")
    for replica, writers in enumerate((first, second)):
        for writer in writers:
            for event in writer.events:
                event["proc"] = event["proc"] | {"parent": launcher.pid}
                if event["rank"] is not None:
                    event["rank"] = event["rank"] | {"dp": {"rank": replica, "size": 2}}

    assert "unknown" == run_of([launcher, *first, *second]).outcome
    assert "ready" == run_of([launcher, *first]).outcome


def test_a_run_fails_in_the_innermost_phase_of_its_first_error() -> None:
    run = run_of(launch([Shape(fail_in="weights.load"), Shape(stop_in="kv.pool")]))

    assert ("failed", "weights.load", "TP0") == (run.outcome, run.failed_phase, run.failed_label)
    assert run.failure is not None
    assert "no luck in weights.load" == run.failure.message


def test_the_first_error_is_first_in_time_not_in_rank() -> None:
    slow, fast = Shape(fail_in="graph.capture"), Shape(fail_in="dist.init")

    run = run_of(launch([slow, fast]))

    assert ("dist.init", "TP1") == (run.failed_phase, run.failed_label)


def test_an_error_wins_over_processes_that_are_gone() -> None:
    run = run_of(launch([Shape(stop_in="weights.load"), Shape(fail_in="weights.load")]), gone)

    assert ("failed", "TP1") == (run.outcome, run.failed_label)


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
def test_a_target_without_room_for_a_token_fails_in_the_profile_wherever_it_raises(unit: str) -> None:
    run = run_of(launch([Shape(fraction=0.1, unit=unit)]))

    assert ("failed", "kv.profile") == (run.outcome, run.failed_phase)
    assert run.failure is not None
    assert "Not enough memory" in str(run.failure.message)


def test_a_negative_profile_of_a_draft_is_no_failure() -> None:
    launcher, rank = launch([Shape(stop_in="graph.capture")])
    rank.worker = "draft"
    with rank.step("kv.profile", result=-5, rest_bytes=-5, result_unit="tokens"):
        pass

    assert "unknown" == run_of([launcher, rank]).outcome


def test_a_negative_profile_of_a_draft_does_not_take_the_blame_of_another_error() -> None:
    launcher, rank = launch([Shape(stop_in="graph.capture")])
    rank.worker = "draft"
    with rank.step("kv.profile", result=-5, rest_bytes=-5, result_unit="tokens"):
        pass
    with pytest.raises(Raised), rank.step("attention.init"):
        raise Raised("builtins.ValueError", "no")

    assert "attention.init" == run_of([launcher, rank]).failed_phase


def test_an_error_that_sglang_catches_fails_nothing() -> None:
    run = run_of(launch([Shape(catches=True)]))

    assert ("ready", ()) == (run.outcome, run.later)


def test_a_caught_error_takes_no_blame_while_the_start_goes_on() -> None:
    assert "starting" == run_of(launch([Shape(catches=True, stop_in="weights.load")]), lambda _: True).outcome


def test_a_caught_error_takes_no_blame_for_a_later_one() -> None:
    assert "graph.capture" == run_of(launch([Shape(catches=True, fail_in="graph.capture")])).failed_phase


def test_without_an_error_a_process_that_is_gone_has_died() -> None:
    writers = launch([Shape(stop_in="weights.load")])
    run = run_of(writers, gone_but(*(writer.pid for writer in writers[1:])))

    assert ("died", "weights.load", "TP0") == (run.outcome, run.failed_phase, run.failed_label)


def test_the_process_that_fell_silent_first_is_the_one_that_died() -> None:
    writers = launch([Shape(stop_in="graph.capture"), Shape(stop_in="weights.load")])
    run = run_of(writers, gone_but(*(writer.pid for writer in writers[1:])))

    assert ("died", "weights.load", "TP1") == (run.outcome, run.failed_phase, run.failed_label)


def test_of_processes_that_are_gone_and_came_as_far_none_is_blamed() -> None:
    writers = launch([Shape(stop_in="weights.load"), Shape(stop_in="weights.load")])
    run = run_of(writers, gone_but(*(writer.pid for writer in writers[1:])))

    assert ("died", "weights.load", None) == (run.outcome, run.failed_phase, run.failed_label)
    assert "TP0, TP1 are gone and weights.load never ended on them" in str(run.outcome_reason)


def test_where_the_launcher_is_gone_too_no_rank_is_blamed_however_far_behind() -> None:
    writers = launch([Shape(stop_in="graph.capture"), Shape(stop_in="weights.load")])
    run = run_of(writers, gone)

    assert ("died", "weights.load", None) == (run.outcome, run.failed_phase, run.failed_label)
    told = f"launcher (pid {writers[0].pid}), TP0, TP1 are gone and weights.load never ended on them"
    assert f"{told}; which went first is not known" == run.outcome_reason


def test_a_run_whose_processes_live_is_starting() -> None:
    assert "starting" == run_of(launch([Shape(stop_in="weights.load")]), lambda _: True).outcome


def test_a_run_from_elsewhere_that_never_ended_is_unknown() -> None:
    run = run_of(launch([Shape(stop_in="weights.load")]), unknowable)

    assert ("unknown", None) == (run.outcome, run.failed_phase)
    assert "not knowable" in str(run.outcome_reason)


def test_a_launcher_alone_is_unknown_once_it_is_gone() -> None:
    launcher, _ = launch([Shape()])

    run = run_of([launcher], gone)

    assert ("unknown", "no rank began scheduler.init") == (run.outcome, run.outcome_reason)


def test_ready_stays_ready_whatever_follows() -> None:
    launcher, rank = launch([Shape()])
    with pytest.raises(Raised), rank.step("graph.capture"):
        raise Raised("torch.OutOfMemoryError", "CUDA out of memory")

    run = run_of([launcher, rank], gone_but(rank.pid))

    assert ("ready", None) == (run.outcome, run.failed_phase)
    assert ["torch.OutOfMemoryError in graph.capture", "the process is gone; this was its last event"] == [
        later.what for later in run.later
    ]
    assert {"TP0"} == {later.label for later in run.later}


def test_a_run_that_was_ready_and_has_ended_says_so_once() -> None:
    writers = launch([Shape(), Shape()])

    (later,) = run_of(writers, gone).later

    assert f"all {len(writers)} processes are gone; this was the last event" == later.what
    assert ("gone", None) == (later.kind, later.label)  # who wrote last is not who ended


def test_the_time_to_ready_is_measured_from_the_first_event() -> None:
    writers = launch([Shape()])
    first, last = writers[0].events[0], writers[1].events[-1]

    assert (last["mono_ns"] - first["mono_ns"]) / 1e9 == run_of(writers).ready_s


def test_a_rank_that_never_said_its_rank_keeps_the_run_from_ready() -> None:
    launcher, first, second = launch([Shape(), Shape()])
    silent = Writer(second.host, 4999, start_ticks=1 << 30, parent=launcher.pid, role="scheduler", free=GIB)
    silent.start()

    run = run_of([launcher, first, silent])

    assert "unknown" == run.outcome
    assert f"ended before it knew its rank: scheduler (pid {silent.pid})" in run.missing[0].reason


def test_a_process_that_ended_before_it_knew_its_role_may_be_the_missing_rank() -> None:
    launcher, first, second = launch([Shape(), Shape()])
    del second.events[3:]

    (missing,) = run_of([launcher, first, second]).missing

    assert 1 == missing.world_rank
    assert f"ended before it knew its rank: other (pid {second.pid})" in missing.reason


def test_with_no_rank_at_all_the_arguments_name_the_missing() -> None:
    launcher, *_ = launch([Shape(), Shape(), Shape()])

    assert [0, 1, 2] == [missing.world_rank for missing in run_of([launcher]).missing]


def test_liveness_is_asked_with_everything_that_names_a_process() -> None:
    asked: list[ProcessId] = []
    launcher, rank = launch([Shape()])

    run_of([launcher, rank], asked.append)  # which answers None

    assert ProcessId("node-a", "boot-a", rank.pid, rank.start_ticks, "pid:[1]") in asked


def test_a_world_told_only_by_the_rank_counts_as_well() -> None:
    launcher, first, second = launch([Shape(), Shape()])
    for writer in (first, second):
        writer.events = [event for event in writer.events if event["role"] not in {"dist.init", "dist.communicator"}]
        writer.events[-1]["rank"] = rank_of(writer.pid - first.pid, 2)

    assert "ready" == run_of([launcher, first, second]).outcome


def test_how_a_forked_child_of_a_rank_ends_says_nothing_about_the_run() -> None:
    launcher, rank = launch([Shape()])
    child = replace(rank, pid=99, start_ticks=(rank.start_ticks or 0) + 1, events=[], stack=[])
    child.begin("weights.load")
    with suppress(Raised), child.step("kv.pool"):
        raise Raised("builtins.SystemExit", "0")
    for event in child.events:
        event["proc"] |= {"parent": rank.pid}

    run = run_of([launcher, rank, child], gone_but(99))

    assert ("ready", (), ()) == (run.outcome, run.missing, run.later)
    assert [("TP0", "scheduler"), (None, "other")] == [(one.label, one.role) for one in run.processes[1:]]


def _many(steps: int, how: str) -> Writer:
    writer = Writer(Host(), 7, start_ticks=1)
    for _ in range(steps):
        if how == "nested":
            writer.begin("weights.load")
        else:
            with suppress(Raised), writer.step("weights.load"):
                raise Raised("builtins.OSError", "no")
    return writer


@pytest.mark.parametrize("how", ["nested", "errors"])
def test_many_steps_take_time_in_proportion(how: str) -> None:
    def cost(steps: int) -> float:
        writer = _many(steps, how)
        began = time.process_time()
        run_of([writer], gone)
        return time.process_time() - began

    few = cost(500)

    assert cost(4000) < 30 * few + 0.2  # eight times as many; squared it would be 64 times
