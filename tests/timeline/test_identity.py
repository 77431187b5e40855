"""Who a process is: later events tell it for the earlier ones, and its label follows from its rank."""

from __future__ import annotations

import pytest

from sglang_probe.timeline.labels import label_of, labels_of
from sglang_probe.timeline.model import Rank, RankPart
from tests.collect.building import Host
from tests.collect.starting import Shape, launch, rank_of
from tests.timeline.making import ranks, run_of


def test_rank_device_and_role_are_filled_back() -> None:
    launcher, rank = launch([Shape(), Shape()])[:2]

    (process,) = ranks(run_of([launcher, rank]))

    assert rank.events[0]["rank"] is rank.events[0]["device"] is None
    assert "other" == rank.events[0]["proc"]["role"]
    assert ("scheduler", "TP0") == (process.role, process.label)
    assert process.device is not None
    assert ("GPU-0", 0, rank.total) == (process.device.uuid, process.device.index, process.device.total_bytes)


def test_a_uuid_that_only_the_last_event_knows_is_kept() -> None:
    launcher, rank = launch([Shape()])
    for event in rank.events[:-1]:
        event["device"] = {"index": 3, "uuid": None, "name": None, "kind": "cuda"}
    rank.events[-1]["device"] = {"index": None, "uuid": "GPU-x", "name": "H200", "kind": None}

    device = ranks(run_of([launcher, rank]))[0].device

    assert device is not None
    assert (3, "GPU-x", "H200", "cuda") == (device.index, device.uuid, device.name, device.kind)


@pytest.mark.parametrize(
    ("rank", "label"),
    [
        (None, None),
        (Rank(), "TP0"),
        (Rank(tp=RankPart(0, 1)), "TP0"),
        (Rank(tp=RankPart(3, 8)), "TP3"),
        (Rank(dp=RankPart(1, 2), pp=RankPart(0, 2), tp=RankPart(5, 8), ep=RankPart(5, 8)), "DP1 PP0 TP5 EP5"),
        (Rank(attn_cp=RankPart(1, 2), moe_dp=RankPart(0, 2), tp=RankPart(0, 1)), "ATTN_CP1 MOE_DP0"),
    ],
)
def test_a_label_names_what_there_is_more_than_one_of(rank: Rank | None, label: str | None) -> None:
    assert label == label_of(rank)


def test_a_label_that_occurs_twice_has_its_host_in_front() -> None:
    first, second = Rank(tp=RankPart(0, 2)), Rank(tp=RankPart(1, 2))

    assert ["a:TP0", "b:TP0", "TP1", None, None] == labels_of(
        [("a", first), ("b", first), ("a", second), ("a", None), ("b", None)]
    )


def test_the_launcher_comes_first_then_the_ranks_in_order() -> None:
    launcher, *others = launch([Shape()] * 3)

    run = run_of([*reversed(others), launcher])

    assert ["launcher", "scheduler", "scheduler", "scheduler"] == [process.role for process in run.processes]
    assert [None, "TP0", "TP1", "TP2"] == [process.label for process in run.processes]


def test_ranks_of_two_hosts_are_one_run_with_the_skew_between_them() -> None:
    a = launch([Shape(), Shape()], Host("node-a", "boot-a"), method="tcp://10.0.0.1:1")
    b = launch([Shape(), Shape()], Host("node-b", "boot-b", ahead_ns=2_000_000_000), method="tcp://10.0.0.1:1")
    for number, writer in enumerate([*a[1:], *b[1:]]):
        for event in writer.events:
            if event["rank"] is not None:
                event["rank"] = rank_of(number, 4)
            for key, value in (("world_size", 4), ("world_rank", number)):
                if key in event["attributes"]:
                    event["attributes"][key] = value

    run = run_of([*a, *b])

    assert ("ready", ["TP0", "TP1", "TP2", "TP3"]) == (run.outcome, [process.label for process in ranks(run)])
    assert [("node-b", "node-a", 2.0)] == [(skew.host, skew.against, skew.seconds) for skew in run.skew]
