"""What the probe writes about real servers."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanes.rows import ROWS
from lanes.runs import Event, Run, Served

pytestmark = [
    pytest.mark.lane,
    pytest.mark.parametrize("version", ROWS),
    pytest.mark.parametrize("tp", [1, 2]),
]

ON_A_CPU = {
    "scheduler.init",
    "dist.init",
    "dist.communicator",
    "weights.load",
    "kv.profile",
    "kv.pool",
    "attention.init",
    "graph.capture",
}
"""The roles that a start on a CPU comes through; a custom all-reduce needs a GPU."""
NOT_BY = {"0.4.6.post5": {"graph.capture"}}
"""What a release does on a GPU alone."""


@pytest.fixture
def run(version: str, tp: int, served: Served) -> Run:
    return served(version, tp, "probed")


@pytest.fixture
def ranks(run: Run) -> dict[int, list[Event]]:
    """Every rank's events, by tensor parallel rank."""
    return {events[-1]["rank"]["tp"]["rank"]: events for events in run.ranks()}


@pytest.fixture
def reachable(version: str) -> set[str]:
    """The roles that this release comes through on a CPU."""
    return ON_A_CPU - NOT_BY.get(version, set())


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == f"sglang.memory.{name}"]


def test_every_event_is_as_the_schema_says(run: Run, validator: Any) -> None:
    problems = [(error.json_path, error.message) for event in run.events() for error in validator.iter_errors(event)]
    assert [] == problems[:10]


def test_every_rank_goes_through_every_role_that_a_cpu_can_show(
    ranks: dict[int, list[Event]], tp: int, reachable: set[str]
) -> None:
    assert set(range(tp)) == set(ranks)
    for events in ranks.values():
        memory = [event for event in events if event["role"]]
        assert set() == reachable - {event["role"] for event in memory if event["kind"] == "begin"}
        assert set() == reachable - {event["role"] for event in memory if event["kind"] == "end"}
        assert set() == {event["role"] for event in memory if event["kind"] == "error"} & reachable


def test_every_call_that_began_has_ended_and_once(ranks: dict[int, list[Event]]) -> None:
    for events in ranks.values():
        began = [event["span"]["id"] for event in events if event["kind"] == "begin"]
        ended = [event["span"]["id"] for event in events if event["kind"] in ("end", "error")]
        assert sorted(began) == sorted(ended)
        assert len(set(began)) == len(began)


def test_the_terms_of_the_budget_reproduce_what_sglang_computed(ranks: dict[int, list[Event]]) -> None:
    for events in ranks.values():
        (profile,) = named(events, "kv.profile.end")
        terms = profile["attributes"]
        assert terms["verified"] is True, terms["verified_reason"]
        summands = [terms["available_bytes"], -terms["slack_bytes"], *(-each for each in terms["deductions"].values())]
        assert abs(sum(summands) - terms["rest_bytes"]) < len(summands)  # SGLang adds floats; each term is rounded


def test_the_budget_is_the_pool_that_the_server_reports(run: Run, ranks: dict[int, list[Event]]) -> None:
    page = run.info["page_size"]
    for events in ranks.values():
        (profile,) = named(events, "kv.profile.end")
        tokens, unit = profile["attributes"]["result"], profile["attributes"]["result_unit"]
        if unit == "bytes":
            whole = [event for event in named(events, "kv.pool.end") if event["attributes"]["pool"] == "all"]
            tokens //= whole[-1]["attributes"]["bytes_per_token"]
        assert run.info["max_total_num_tokens"] == tokens // page * page


def test_the_pool_that_was_built_has_the_tokens_that_the_server_reports(
    run: Run, ranks: dict[int, list[Event]]
) -> None:
    for events in ranks.values():
        told = named(events, "kv.pool.sample") + named(events, "kv.pool.end")  # a pool's own word, or its constructor's
        pools = {event["attributes"]["pool"]: event["attributes"] for event in told}
        assert run.info["max_total_num_tokens"] == pools["MHA"]["tokens"]
        (whole,) = named(events, "scheduler.init.end")
        assert run.info["max_total_num_tokens"] == whole["attributes"]["max_total_num_tokens"]


def test_nothing_was_lost_or_left_unread_where_a_cpu_can_answer(run: Run) -> None:
    assert [] == [(event["event"], event["degraded"]) for event in run.events() if event["degraded"]]


def test_each_process_has_a_private_file_of_its_own(run: Run) -> None:
    for path in run.files:
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)
        host, pid, start = path.stem.rsplit(".", 2)
        events = [event for event in run.events() if event["pid"] == int(pid)]
        assert {host} == {event["host"] for event in events}
        assert {int(start)} == {event["proc"]["start_ticks"] for event in events}
        assert list(range(len(events))) == [event["seq"] for event in events if event.get("part", 1) == 1]


def test_all_processes_of_a_start_are_one_run(run: Run, tp: int) -> None:
    assert 1 == len({event["run_id"] for event in run.events()})
    roles = [events["proc"]["role"] for events in {event["pid"]: event for event in run.events()}.values()]
    assert sorted([*["scheduler"] * tp, "detokenizer", "launcher"]) == sorted(role for role in roles if role != "other")


def test_the_timeline_of_the_run_says_ready_with_every_rank_in_it(
    run: Run, tp: int, reachable: set[str], timeline: Callable[[Path], dict[str, Any]]
) -> None:
    read = timeline(run.directory)
    assert "ready" == read["outcome"]
    ranked = [process for process in read["processes"] if process["role"] == "scheduler"]
    assert tp == len(ranked)
    for process in ranked:
        assert reachable <= {step["phase"] for step in process["steps"]}
        assert {"ok"} == {step["state"] for step in process["steps"] if step["phase"] in reachable}
        (worker,) = process["workers"]
        assert worker["budget"]["verified"] is True
        assert run.info["max_total_num_tokens"] == worker["kv"]["tokens"]
