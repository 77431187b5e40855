"""The headline: how a run ended, on how many ranks, with which numbers; the foot that explains its words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from sglang_probe.report.budget import worked
from sglang_probe.report.outcome import headline, why
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline.model import Budget, Device, Later, Process, Run, Step, Timeline

QUIET = "no error was recorded: stopped or killed, both look like this"


def changed(timeline: Timeline, **more: Any) -> Timeline:
    """The timeline with fields of its one run changed."""
    (run,) = timeline.runs
    return msgspec.structs.replace(timeline, runs=(msgspec.structs.replace(run, **more),))


def with_budgets(timeline: Timeline, **by_label: dict[str, Any] | None) -> Run:
    """The run with terms of the ranks' budgets changed; None takes a budget away."""
    (run,) = timeline.runs

    def with_terms(process: Process) -> Process:
        if process.label is None or process.label not in by_label:
            return process
        (worker,), terms = process.workers, by_label[process.label]
        budget = None if terms is None else msgspec.structs.replace(worker.budget or Budget(), **terms)
        return msgspec.structs.replace(process, workers=(msgspec.structs.replace(worker, budget=budget),))

    return msgspec.structs.replace(run, processes=tuple(map(with_terms, run.processes)))


def budget_of(run: Run, label: str) -> Budget:
    (found,) = [process.workers[0].budget for process in run.processes if process.label == label]
    assert found is not None
    return found


def test_a_negative_budget_is_told_with_where_sglang_raised_and_how_many_ranks(story: Timeline) -> None:
    (run,) = story.runs

    assert "FAILED in kv.profile on both ranks: the budget is negative; SGLang raised in kv.pool" == headline(run)
    assert "FAILED in kv.profile on TP1: the" in headline(with_budgets(story, TP0=None))


def test_a_budget_that_leaves_less_than_a_token_is_not_called_negative(story: Timeline) -> None:
    little = {"rest_bytes": 5, "result": 0}

    assert ": the budget leaves no room for a token;" in headline(with_budgets(story, TP0=little, TP1=little))


def test_an_error_elsewhere_is_counted_over_the_ranks_that_raised_alike(story: Timeline) -> None:
    (run,) = changed(with_timeline(story, with_budgets(story, TP0=None, TP1=None)), failed_phase="kv.pool").runs

    assert "FAILED in kv.pool on both ranks" == headline(run)
    assert "FAILED in dist.init on TP0" == headline(msgspec.structs.replace(run, failed_phase="dist.init"))


def with_timeline(timeline: Timeline, run: Run) -> Timeline:
    return msgspec.structs.replace(timeline, runs=(run,))


@pytest.mark.parametrize("outcome", ["failed", "died"])
def test_why_is_the_budget_of_the_rank_with_least_left(story: Timeline, outcome: str) -> None:
    (run,) = changed(story, outcome=outcome).runs
    budget = budget_of(run, "TP1")
    assert (budget.available_local_bytes or 0) < (budget_of(run, "TP0").available_local_bytes or 0)

    minimum = f"minimum viable fraction {budget.minimum_viable_fraction:.4f}"
    assert f"rest = {worked(budget)} on TP1, the tightest; {minimum}" == why(run)


def test_without_the_tightest_rank_none_is_called_so(story: Timeline) -> None:
    run = with_budgets(story, TP1={"available_local_bytes": budget_of(story.runs[0], "TP0").available_local_bytes})
    alone = with_budgets(story, TP1=None)

    assert " on 2 ranks alike; " in str(why(run))
    assert " on TP0; " in str(why(alone))

    ended_first = with_budgets(story, TP1={"available_local_bytes": 1 << 36})  # the minimum is of a rank that said none
    assert " on TP0; " in str(why(ended_first))


def test_there_is_no_why_where_the_budget_left_something(story: Timeline, ready: Timeline) -> None:
    enough = {"rest_bytes": 1 << 30, "result": 1000}

    assert why(with_budgets(story, TP0=enough, TP1=enough)) is None
    assert why(ready.runs[0]) is None


def a_ready_run(ready: Timeline, *alive: bool | None) -> Run:
    (run,) = changed(ready, later=()).runs
    (rank,) = run.processes
    others = [Process(host="node-a", pid=9 + number, role=f"role{number}") for number in range(len(alive) - 1)]
    processes = [
        msgspec.structs.replace(one, alive=is_alive) for one, is_alive in zip((rank, *others), alive, strict=True)
    ]
    return msgspec.structs.replace(run, processes=tuple(processes))


@pytest.mark.parametrize(
    ("alive", "said"),
    [
        ([True, True], ""),
        ([None, None], ""),
        ([False], f", now ended: its one process is gone ({QUIET})"),
        ([False, False, False], f", now ended: all 3 processes are gone ({QUIET})"),
        ([False, True, True], ", but TP0 is gone; role0, role1 still run"),
        ([False, False, True], ", but TP0, role0 are gone; role1 still runs"),
        ([False, None], ", but TP0 is gone"),
    ],
)
def test_a_server_that_was_ready_and_is_gone_is_not_called_ready_alone(
    ready: Timeline, alive: list[bool | None], said: str
) -> None:
    assert f"READY after 61.5 s{said}" == headline(a_ready_run(ready, *alive))


def test_what_the_headline_says_of_the_gone_is_not_said_again(ready: Timeline) -> None:
    gone = Later(ts=None, label=None, host="node-a", pid=1, phase=None, what="all 1 processes are gone", kind="gone")
    error = Later(ts=None, label="TP0", host="node-a", pid=1, phase=None, what="OSError in kv.pool")
    run = msgspec.structs.replace(a_ready_run(ready, False), later=(error, gone))

    text = timeline_text(with_timeline(ready, run), width=100)

    assert "(see what came later)" in text
    assert ["later     TP0: OSError in kv.pool"] == [line for line in text.splitlines() if line.startswith("later")]


def a_start(ready: Timeline, *open_phases: str | None) -> Run:
    """A start of which each rank is in one phase, or has not begun one."""

    def steps(phase: str | None) -> tuple[Step, ...]:
        root = Step(id="1", parent=None, phase="scheduler.init")
        return () if phase is None else (root, Step(id="2", parent="1", phase=phase, depth=1))

    ranks = [
        Process(host="node-a", pid=rank, label=f"TP{rank}", alive=True, last_ts=LAST, steps=steps(phase))
        for rank, phase in enumerate(open_phases)
    ]
    launcher = Process(host="node-a", pid=99, role="launcher", alive=True, last_ts=LAST)
    return changed(ready, outcome="starting", processes=(launcher, *ranks)).runs[0]


LAST = "2026-11-29T18:45:41.500000000Z"
SOON = datetime(2026, 11, 29, 18, 45, 41, 500000, tzinfo=timezone.utc) + timedelta(seconds=5.5)


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        (["kv.profile", "kv.profile"], "in kv.profile on TP0, TP1"),
        (["kv.profile", "weights.load"], "in kv.profile on TP0; in weights.load on TP1"),
        ([None], "before its first step on TP0"),
        ([], "no rank yet; launcher still runs"),
    ],
)
def test_a_start_says_where_it_is_and_for_how_long_it_was_silent(
    ready: Timeline, phases: list[str | None], said: str
) -> None:
    run = a_start(ready, *phases)

    assert f"STARTING: {said}; last event 5.5 s ago" == headline(run, SOON)
    assert f"STARTING: {said}" == headline(run)


def test_a_start_names_nothing_that_may_still_come(ready: Timeline, killed: Timeline) -> None:
    starting = a_start(ready, None)
    run = msgspec.structs.replace(starting, missing=killed.runs[0].missing, health=killed.runs[0].health)

    text = timeline_text(with_timeline(ready, run))

    assert "missing" not in text
    assert "no hook for" not in text


def test_a_missing_rank_is_said_once(killed: Timeline) -> None:
    health = msgspec.structs.replace(killed.runs[0].health, says=("ranks are missing (1): rank 2 of 3",))

    text = timeline_text(changed(killed, health=health))

    assert 1 == text.count("missing")
    assert "rank 2 of 3 is missing: no file of it is here" in text


def test_files_that_were_not_given_are_said_instead_of_what_they_hold(killed: Timeline) -> None:
    text = timeline_text(changed(killed, unread_files=3))

    assert "only 2 of the run's 5 files were given" in text
    assert "is missing" not in text
    assert "no hook for" not in text


def test_launches_count_from_one_where_a_run_id_has_several(story: Timeline) -> None:
    (run,) = story.runs
    second = msgspec.structs.replace(run, launch=1)

    both = timeline_text(msgspec.structs.replace(story, runs=(run, second)))

    assert [f"{run.run_id}, launch {number}" in both for number in (0, 1, 2)] == [False, True, True]
    assert ", launch" not in timeline_text(story)


@pytest.mark.parametrize("state", ["died", "interrupted", "open"])
def test_only_states_that_occur_are_explained(story: Timeline, state: Any) -> None:
    (run,) = story.runs
    *others, last = run.processes
    steps = (*last.steps[:-1], msgspec.structs.replace(last.steps[-1], state=state))
    text = timeline_text(changed(story, processes=(*others, msgspec.structs.replace(last, steps=steps))))

    assert "How to read it" not in timeline_text(story)
    explained = [line[4:].partition(":")[0] for line in text.partition("How to read it")[2].splitlines()]
    assert [state] == [word for word in explained if word in {"died", "interrupted", "open"}]


def test_ranks_on_a_cpu_share_the_hosts_memory_and_that_is_said_once(story: Timeline) -> None:
    (run,) = story.runs
    cpu = Device(kind="cpu", total_bytes=1 << 40)
    on_cpu = [msgspec.structs.replace(one, device=cpu if one.label else None) for one in run.processes]
    note = "the host's memory is shared"

    assert 1 == timeline_text(changed(story, processes=tuple(on_cpu))).count(note)
    assert 0 == timeline_text(changed(story, processes=tuple(on_cpu[:2]))).count(note)
