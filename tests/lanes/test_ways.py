"""The other ways into SGLang, each on the lanes where a CPU can walk it, show the probe what a plain server shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanes.runs import Run, Walked
from lanes.ways import WAYS, Way

ROLES = {"scheduler.init", "dist.init", "dist.communicator", "weights.load", "kv.profile", "kv.pool", "attention.init"}
"""What every way comes through; that it captures nothing is a way's own business."""

every_way = pytest.mark.parametrize(
    ("version", "name"), [(version, way.name) for way in WAYS.values() for version in way.lanes]
)
with_a_draft = pytest.mark.parametrize(
    ("version", "name"), [(version, way.name) for way in WAYS.values() if way.draft for version in way.lanes]
)
pytestmark = pytest.mark.lane


@pytest.fixture
def way(name: str) -> Way:
    return WAYS[name]


@pytest.fixture
def run(version: str, name: str, walked: Walked) -> Run:
    return walked(version, name)


@pytest.fixture
def ranks(run: Run, timeline: Callable[[Path], dict[str, Any]]) -> list[dict[str, Any]]:
    """The processes of the timeline that are ranks."""
    return [process for process in timeline(run.directory)["processes"] if process["steps"]]


@every_way
def test_the_timeline_says_ready(run: Run, timeline: Callable[[Path], dict[str, Any]]) -> None:
    assert "ready" == timeline(run.directory)["outcome"]


@every_way
def test_each_rank_has_the_label_of_its_place(ranks: list[dict[str, Any]], way: Way) -> None:
    assert sorted(way.ranks) == sorted(rank["label"] for rank in ranks)


@every_way
def test_every_rank_goes_through_every_role(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert set() == ROLES - {step["phase"] for step in rank["steps"] if step["worker"] != "draft"}
        assert {"ok"} == {step["state"] for step in rank["steps"] if step["phase"] in ROLES}


@every_way
def test_each_targets_budget_is_verified_and_its_pools_are_named(ranks: list[dict[str, Any]], way: Way) -> None:
    for rank in ranks:
        (target,) = (worker for worker in rank["workers"] if worker["worker"] == "target")
        assert target["budget"]["verified"] is True, target["budget"]["verified_reason"]
        assert set(way.pools) <= {pool["kind"] for pool in target["kv"]["pools"]}


@with_a_draft
def test_a_draft_goes_through_its_own_roles_in_the_rank_of_its_target(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert ["draft", "target"] == sorted(worker["worker"] for worker in rank["workers"])
        steps = {step["phase"] for step in rank["steps"] if step["worker"] == "draft"}
        assert {"weights.load", "kv.pool", "attention.init"} <= steps


@every_way
def test_every_event_is_as_the_schema_says_and_nothing_was_lost(run: Run, validator: Any) -> None:
    events = run.events()
    assert [] == [(error.json_path, error.message) for event in events for error in validator.iter_errors(event)][:10]
    assert [] == [(event["event"], event["degraded"]) for event in events if event["degraded"]]
    assert [] == run.said()
