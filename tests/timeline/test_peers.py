"""A rank that reports a lost peer did not fail first: the peer that fell silent did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sglang_probe.timeline.peers import LOST_PEER
from tests.collect.building import SECOND, Raised, Writer
from tests.collect.starting import Shape, launch
from tests.timeline.making import gone, gone_but, ranks, run_of, states, step, unknowable

CLOSED = "[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]"


def told_by_the_first(message: str, shapes: Sequence[Shape], waits: int = SECOND) -> list[Writer]:
    """The first rank waits in its weights.load and raises; the others stop where their shape says."""
    launcher, first, *others = launch([Shape(stop_in="weights.load"), *shapes])
    del first.events[-1]  # begin it again, as a step that raises
    first.stack.pop()
    with pytest.raises(Raised), first.step("weights.load", lasts=waits):
        raise Raised("builtins.RuntimeError", message)
    return [launcher, first, *others]


@pytest.mark.parametrize("alive", [gone, unknowable])
@pytest.mark.parametrize("words", LOST_PEER)
def test_a_rank_that_fell_silent_before_a_report_of_a_lost_peer_died(words: str, alive: object) -> None:
    writers = told_by_the_first(f"so: {words} it", [Shape(stop_in="weights.load")])
    error = next(event for event in writers[1].events if event["kind"] == "error")
    ahead = (error["mono_ns"] - writers[2].events[-1]["mono_ns"]) / SECOND

    run = run_of(writers, alive)  # type: ignore[arg-type]  # both answer like a function of liveness

    assert ("died", "weights.load", "TP1") == (run.outcome, run.failed_phase, run.failed_label)
    assert run.failure is not None
    first, second = ranks(run)
    assert ("error", "died", "died") == (
        states(first)["weights.load"], states(second)["weights.load"], states(second)["scheduler.init"]
    )  # fmt: skip
    for said in (run.outcome_reason, step(second, "weights.load").state_reason):
        assert f"its last event came {ahead:.3f} s before TP0's error; TP0 was the first to report" in str(said)
        assert "failed first" not in str(said)


def test_an_error_of_a_ranks_own_leaves_the_silent_interrupted() -> None:
    run = run_of(told_by_the_first("CUDA out of memory", [Shape(stop_in="weights.load")]), gone)

    assert ("failed", "weights.load", "TP0") == (run.outcome, run.failed_phase, run.failed_label)
    reason = str(step(ranks(run)[1], "weights.load").state_reason)
    assert "interrupted" == states(ranks(run)[1])["weights.load"]
    assert "TP0 was the first to report an error, in weights.load" in reason
    assert "may have died" not in reason  # both were in the same phase, in which nothing is written


def test_who_fell_silent_in_another_phase_before_an_error_may_have_died_first() -> None:
    run = run_of(told_by_the_first("no luck", [Shape(stop_in="dist.init")]), gone)

    reason = str(step(ranks(run)[1], "dist.init").state_reason)
    assert ("failed", "interrupted") == (run.outcome, states(ranks(run)[1])["dist.init"])
    assert reason.endswith("s before TP0's error, so it may have died first")


def test_of_several_silent_ranks_the_one_furthest_behind_died() -> None:
    shapes = [Shape(stop_in="kv.profile"), Shape(stop_in="weights.load")]
    run = run_of(told_by_the_first(CLOSED, shapes, waits=9 * SECOND), gone)

    assert ("died", "weights.load", "TP2") == (run.outcome, run.failed_phase, run.failed_label)
    assert "interrupted" == states(ranks(run)[1])["kv.profile"]
    assert "TP2 died" in str(step(ranks(run)[1], "kv.profile").state_reason)


def test_of_silent_ranks_that_came_equally_far_none_is_blamed() -> None:
    run = run_of(told_by_the_first(CLOSED, [Shape(stop_in="weights.load")] * 2), gone)

    assert ("died", "weights.load", None) == (run.outcome, run.failed_phase, run.failed_label)
    assert "one of TP1, TP2 went first and it is not known which" in str(run.outcome_reason)
    assert "it or one of TP2 went first" in str(step(ranks(run)[1], "weights.load").state_reason)


def test_a_rank_that_still_runs_is_no_lost_peer() -> None:
    writers = told_by_the_first(CLOSED, [Shape(stop_in="weights.load")])
    run = run_of(writers, gone_but(writers[1].pid))

    assert ("failed", "open") == (run.outcome, states(ranks(run)[1])["weights.load"])
    assert "no process here fell silent before it" in str(run.outcome_reason)


def test_a_rank_that_wrote_on_after_the_report_is_no_lost_peer() -> None:
    launcher, first, second = told_by_the_first(CLOSED, [Shape(stop_in="kv.pool")], waits=0)

    assert second.events[-1]["mono_ns"] > first.events[-1]["mono_ns"]
    assert "failed" == run_of([launcher, first, second], gone).outcome


def test_a_barrier_that_waited_to_its_end_may_be_about_a_slow_peer() -> None:
    message = "there are other ranks that didn't finish loading. It is likely due to ... or a slow node."

    run = run_of(told_by_the_first(message, [Shape(stop_in="weights.load")], waits=480 * SECOND), gone)

    assert ("failed", "interrupted") == (run.outcome, states(ranks(run)[1])["weights.load"])


def test_between_hosts_the_order_is_in_doubt_by_what_their_clocks_may_be_apart() -> None:
    launcher, first, second = told_by_the_first(CLOSED, [Shape(stop_in="dist.init")])
    ahead = replace(second.host, ahead_ns=20 * SECOND)  # and no common step ties the two clocks
    for event in second.events:
        event.update(host="node-b", boot_id="boot-b", ts=ahead.wall(event["mono_ns"]))

    run = run_of([launcher, first, second], unknowable)

    assert ("died", "TP1") == (run.outcome, run.failed_label)
    assert "its last event came about when TP0's error did" in str(run.outcome_reason)
