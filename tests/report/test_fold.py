"""Ranks that agree are told once, and whoever differs, fails or is the tightest is named."""

from __future__ import annotations

import re
from statistics import median_low
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.report.apart import differences, middle_of, spread
from sglang_probe.report.facts import TENANT
from sglang_probe.report.fold import MOST_ROUNDS, TOLERANCE, Fold, folds_of
from sglang_probe.report.text import MOST_BLOCKS, timeline_text
from sglang_probe.timeline.model import Device, Failure, Neighbour, Process, Run, Worker
from tests.report.sizes import ODD, sized
from tests.timeline.building import build_budget, build_rank, build_run, build_step

GIB = 1 << 30
JITTER = TOLERANCE / GIB / 2
"""GiB by which ranks may differ and agree."""
AVAILABLE = 21.697


def rank(position: int, size: int, less: float = 0.0, seconds: float = 33.5, **more: Any) -> Process:
    """A rank that loads weights, with so many GiB less than the others from its communicators on."""
    steps = (
        build_step("scheduler.init", 0, 94.4, AVAILABLE - less, 40.0),
        build_step(f"dist.communicator GroupCoordinator tp:{position}", 1, 94.4, 93.9 - less, 1.0),
        build_step("weights.load Qwen2ForCausalLM", 1, 93.9 - less, AVAILABLE - less, seconds, **more.pop("load", {})),
    )
    budget = build_budget(AVAILABLE, 93.9, 0.9, available_local_bytes=round((AVAILABLE - less) * GIB))
    known = {"workers": (Worker(worker="target", budget=budget),), **more}
    return build_rank(position, size, steps, **known)


def folded(*processes: Process) -> list[Fold]:
    return folds_of(build_run(processes, "ready"), processes)


def labels(folds: list[Fold]) -> list[list[str]]:
    return [fold.labels for fold in folds]


def test_ranks_that_differ_by_jitter_are_one_and_by_a_tenant_are_not() -> None:
    ranks = [rank(place, 8, less={3: 30.0}.get(place, JITTER * (place % 2))) for place in range(8)]

    assert labels(folded(*ranks)) == [[f"TP{place}" for place in range(8) if place != 3], ["TP3"]]


def test_what_others_did_to_the_host_s_memory_parts_no_ranks_of_a_cpu() -> None:
    host = Device(kind="cpu", total_bytes=95 * GIB)
    ranks = [rank(place, 2, less=3.0 * place, device=host, workers=()) for place in range(2)]

    near = [rank(place, 2, less=JITTER * place, device=host, workers=()) for place in range(2)]

    assert labels(folded(*ranks)) == [["TP0", "TP1"]]
    (fold,) = folded(*near)
    assert list(spread(fold)) == []
    assert "prints the same" not in told(build_run(tuple(near), "ready"))


def test_ids_of_groups_in_the_names_of_steps_do_not_part_ranks_and_are_not_printed_for_all() -> None:
    (fold,) = folded(*(rank(place, 4) for place in range(4)))

    assert "GroupCoordinator tp:*" in [step.detail for step in fold.shown.steps]
    (alone,) = folded(rank(2, 4))
    assert "GroupCoordinator tp:2" in [step.detail for step in alone.shown.steps]


@pytest.mark.parametrize(
    "strange",
    [
        {"load": {"state": "died"}},
        {"load": {"state": "error", "failure": Failure(type="E", message="no")}},
        {"load": {"worker": "draft"}},
        {"load": {"attributes": {"disabled": True}}},
        {"workers": ()},
        {"alive": False},
        {"torn_tail": True},
        {"lost_events": 3},
        {"no_memory_role": True},
        {"device": None},
        {"neighbours": (Neighbour(pid=7, kind="foreign", peak_bytes=TENANT),)},
    ],
)
def test_what_is_more_than_an_amount_sets_a_rank_apart(strange: dict[str, Any]) -> None:
    ranks = [rank(place, 4, **dict(strange if place == 2 else {})) for place in range(4)]

    found = folded(*ranks)
    middle = middle_of(found)

    assert labels(found) == [["TP0", "TP1", "TP3"], ["TP2"]]
    assert middle is not None
    assert differences(found[1], middle)


def test_errors_that_say_the_same_with_other_figures_are_one() -> None:
    said = "CUDA out of memory. GPU {} has {} GiB free"
    ranks = [
        rank(place, 4, load={"state": "error", "failure": Failure(type="E", message=said.format(place, place / 8))})
        for place in range(4)
    ]

    assert len(folded(*ranks)) == 1


def test_the_tightest_rank_stands_for_those_it_agrees_with_and_is_named() -> None:
    ranks = [rank(place, 8, less=JITTER if place == 5 else 0.0) for place in range(8)]

    (fold,) = folded(*ranks)

    assert (fold.shown.label, fold.tightest) == ("TP5", ranks[5])
    assert "available" in " ".join(spread(fold))
    assert "least TP5" in " ".join(spread(fold))


def test_no_rank_is_the_tightest_where_all_are_alike() -> None:
    (fold,) = folded(*(rank(place, 4) for place in range(4)))

    assert fold.tightest is None
    assert list(spread(fold)) == []


def test_in_what_a_rank_differs_is_said_from_where_on_and_how_much_longer() -> None:
    ranks = [rank(place, 8, seconds=30.0) for place in range(8)]
    ranks[6] = rank(6, 8, less=2.0, seconds=90.0)
    found = folded(*ranks)
    middle = middle_of(found)
    assert middle is not None

    assert differences(found[1], middle) == [
        "2.000 GiB less free after dist.communicator GroupCoordinator tp:6",
        "weights.load Qwen2ForCausalLM took 3.0x as long (90.00 s, not 30.00)",
    ]


def test_a_slow_rank_that_agrees_in_memory_is_named_with_its_time() -> None:
    (fold,) = folded(*(rank(place, 8, seconds=90.0 if place == 3 else 30.0) for place in range(8)))

    assert list(spread(fold)) == ["weights.load Qwen2ForCausalLM: 30.00 to 90.00 s (longest TP3)"]


amounts = st.lists(st.floats(0, 8) | st.sampled_from([0.0, JITTER, 4.0]), min_size=1, max_size=MOST_ROUNDS + 8)


@given(amounts)
def test_every_rank_is_in_one_group_and_near_its_median(less: list[float]) -> None:
    ranks = [rank(place, len(less), less=one) for place, one in enumerate(less)]
    found = folded(*ranks)

    told = [label for fold in found for label in fold.labels]
    assert sorted(told) == sorted(process.label or "" for process in ranks)
    for fold in found:
        free = [process.steps[0].free_bytes or 0 for process in fold.processes]
        assert max(abs(one - median_low(free)) for one in free) <= TOLERANCE


@given(st.permutations(range(20)))
def test_a_few_ranks_far_off_do_not_move_what_the_others_are_compared_with(order: list[int]) -> None:
    far = set(order[:9])
    ranks = [rank(place, 20, less=40.0 + 2 * place if place in far else 0.0) for place in range(20)]
    middle = middle_of(folded(*ranks))

    assert middle is not None
    assert middle.fold.labels == [f"TP{place}" for place in range(20) if place not in far]


def test_of_many_groups_those_that_failed_are_shown_and_every_other_rank_is_named_or_counted() -> None:
    count = 4 * MOST_BLOCKS
    ranks = [rank(place, count, less=float(place)) for place in range(count)]
    ranks[-1] = rank(count - 1, count, load={"state": "died"})
    text = told(build_run(tuple(ranks), "died", failed_label=ranks[-1].label))

    assert text.count("\n== ") == MOST_BLOCKS
    assert f"\n== TP{count - 1}: " in text
    assert f"{count - MOST_BLOCKS} more ranks, " in text
    assert "--all prints every rank" in text


def test_ranks_that_died_are_each_named_though_they_have_no_block() -> None:
    count = 6 * MOST_BLOCKS
    ranks = [rank(place, count, less=float(place), load={"state": "died"}) for place in range(0, count, 2)]

    text = " ".join(told(build_run(tuple(ranks), "died")).split())

    names = re.findall(r"\bTP\d+\b", text.partition("The ranks at the end")[2])
    assert {process.label for process in ranks} == set(names)


def told(run: Run, **how: Any) -> str:
    timeline = msgspec.structs.replace(sized(1, ()), runs=(run,))
    return timeline_text(timeline, **how)


def test_every_rank_has_a_block_where_everything_is_asked_for() -> None:
    timeline = sized(8, ODD[8])
    blocks = timeline_text(timeline, everything=True).split("\n== ")[1:]

    assert [block.partition(":")[0] for block in blocks] == [f"TP{place}" for place in range(8)]
    assert ["against the median of 7 ranks" in block for block in blocks] == [place in ODD[8] for place in range(8)]


def test_a_rank_that_is_asked_for_has_its_block_alone_and_what_sets_it_apart() -> None:
    text = timeline_text(sized(8, ODD[8]), only=["TP5", "TP1"])

    assert [block.partition(":")[0] for block in text.split("\n== ")[1:]] == ["TP1", "TP5"]
    assert "\nranks " in text.partition("\n\n")[0]  # of the head
    assert "pre-load  weights" not in text
    assert "0.293 GiB less free" in text


def test_strangers_on_the_cards_of_all_ranks_of_a_group_are_named() -> None:
    recorded = sized(8, ()).runs[0]
    ranks = tuple(
        msgspec.structs.replace(one, neighbours=(Neighbour(pid=9000 + place, kind="foreign", peak_bytes=GIB),))
        for place, one in enumerate(process for process in recorded.processes if process.label)
    )
    text = " ".join(told(msgspec.structs.replace(recorded, processes=ranks)).split())

    assert text.count(" == ") == 1
    assert [place for place in range(8) if f"pid {9000 + place} " not in text] == []
