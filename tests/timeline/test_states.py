"""What became of a step without an end."""

from __future__ import annotations

import pytest

from tests.collect.building import Writer
from tests.collect.starting import Shape, launch
from tests.timeline.making import gone, gone_but, ranks, run_of, states, step, unknowable


def _one_killed() -> list[Writer]:
    return launch([Shape(stop_in="weights.load"), Shape(stop_in="kv.pool")])


def test_steps_that_ended_are_ok_and_steps_that_raised_are_errors() -> None:
    (rank,) = ranks(run_of(launch([Shape(fail_in="weights.load")])))

    found = states(rank)
    assert ("error", "error", "ok") == (found["scheduler.init"], found["weights.load"], found["dist.init"])


def test_every_open_step_of_a_process_that_is_gone_has_died() -> None:
    (rank,) = ranks(run_of(launch([Shape(stop_in="weights.load")]), gone))

    assert ("died", "died", "ok") == tuple(
        step(rank, phase).state for phase in ("scheduler.init", "weights.load", "dist.init")
    )


def test_when_one_rank_died_the_others_from_elsewhere_were_interrupted() -> None:
    writers = _one_killed()
    first, second = ranks(run_of(writers, gone_but(writers[1].pid, others=None)))

    assert ("died", "interrupted") == (step(first, "weights.load").state, step(second, "kv.pool").state)
    assert "TP0 died" in str(step(second, "kv.pool").state_reason)


def test_when_one_rank_died_one_that_still_runs_is_open() -> None:
    writers = _one_killed()
    _, second = ranks(run_of(writers, gone_but(writers[1].pid)))

    assert ("open", "its process still runs") == (step(second, "kv.pool").state, step(second, "kv.pool").state_reason)


@pytest.mark.parametrize("alive", [gone, unknowable])
def test_when_one_rank_failed_the_open_steps_of_the_others_were_interrupted(alive: object) -> None:
    failed, other = ranks(run_of(launch([Shape(fail_in="kv.profile"), Shape(stop_in="kv.pool")]), alive))  # type: ignore[arg-type]  # both answer like a function of liveness

    assert "error" == step(failed, "kv.profile").state
    assert ("interrupted", "interrupted") == (step(other, "kv.pool").state, step(other, "scheduler.init").state)
    assert "TP0 was the first to report an error, in kv.profile" in str(step(other, "kv.pool").state_reason)


def test_a_step_of_a_live_start_is_open() -> None:
    (rank,) = ranks(run_of(launch([Shape(stop_in="weights.load")]), lambda _: True))

    assert {"open"} == {step(rank, phase).state for phase in ("scheduler.init", "weights.load")}


def test_a_step_from_elsewhere_is_open_and_says_why() -> None:
    (rank,) = ranks(run_of(launch([Shape(stop_in="weights.load")])))

    assert "open" == step(rank, "weights.load").state
    assert "not knowable" in str(step(rank, "weights.load").state_reason)


def test_a_step_whose_end_line_is_lost_did_not_die() -> None:
    launcher, rank = launch([Shape()])
    rank.events = [one for one in rank.events if one["event"] != "sglang.memory.weights.load.end"]

    run = run_of([launcher, rank], gone)

    weights = step(ranks(run)[0], "weights.load")
    assert ("open", "a step around it ended: its own end line is lost") == (weights.state, weights.state_reason)
    assert "ready" == run.outcome
    assert 1 == run.health.lost_events


def test_a_step_whose_begin_line_is_lost_keeps_its_place_and_figures() -> None:
    launcher, rank = launch([Shape()])
    whole = ranks(run_of([launcher, rank]))[0]
    rank.events = [one for one in rank.events if one["event"] != "sglang.memory.dist.init.begin"]

    (process,) = ranks(run_of([launcher, rank]))

    assert [one.id for one in whole.steps] == [one.id for one in process.steps]
    before, after = step(whole, "dist.init"), step(process, "dist.init")
    assert (before.cost_bytes, before.duration_s, before.depth) == (after.cost_bytes, after.duration_s, after.depth)
    assert (None, "its begin line is lost") == (after.ts, after.state_reason)
