"""What lies before the weights."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sglang_probe.timeline.model import PreLoad, Process
from tests.explain.explaining import failed, of, rank, ready, rules
from tests.timeline.building import build_step, gib

WAY = PreLoad(
    idle_free_bytes=gib(94.974),
    context_bytes=gib(0.508),
    world_group_bytes=gib(0.09),
    communicators_bytes=gib(0.343),
    custom_allreduce_bytes=gib(0.034),
    other_bytes=gib(-0.001),
    pre_load_bytes=gib(94.0),
)


def with_way(process: Process, **more: Any) -> Process:
    return replace(process, pre_load=replace(WAY, **more))


def test_its_cost_counts_by_the_fraction_and_cannot_be_the_cause_of_the_story() -> None:
    run = failed(with_way(rank(0, 1)))
    found = of("custom_all_reduce", run)

    assert found.severity == "info"
    rest = 21.7 - 94.0 * (1 - 0.55)
    assert "cost 0.034 GiB on each rank" in found.says
    assert f"It cannot be the cause: without it the budget would still be {rest + 0.034 * 0.55:.3f} GiB" in found.says
    assert f"0.034 x 0.550 = {0.034 * 0.55:.3f} GiB" in (found.formula or "")


def test_it_is_the_cause_where_a_budget_failed_by_less() -> None:
    run = failed(with_way(rank(0, 1, available=42.29, fraction=0.55, weights=51.7)))  # short by 0.01
    found = of("custom_all_reduce", run)

    assert found.severity == "error"
    assert found.lever is not None
    assert found.lever.flag == "--disable-custom-all-reduce"
    assert gib(0.034 * 0.55) == pytest.approx(found.lever.gain_bytes, abs=2)


def test_a_healthy_run_is_not_told_to_turn_it_off() -> None:
    found = of("custom_all_reduce", ready(with_way(rank(0, 1, available=80.0, weights=14.0))))

    assert found.lever is None


def test_why_it_stayed_disabled_is_told_once_for_all_ranks() -> None:
    step = build_step("allreduce.buffers CustomAllreduce", 2, 94.0, 94.0, 0.1,
                      attributes={"disabled": True, "class": "CustomAllreduce", "world_size": 2,
                                  "disabled_reason": "no NVLink"})  # fmt: skip
    ranks = [replace(one, steps=(*one.steps, step)) for one in (rank(0), rank(1))]
    found = of("custom_all_reduce", failed(*ranks))

    assert "CustomAllreduce stayed disabled: no NVLink" in found.says
    assert ("TP0", "TP1") == found.ranks


def test_a_group_of_one_rank_needs_none() -> None:
    step = build_step("allreduce.buffers CustomAllreduce", 2, 94.0, 94.0, 0.1,
                      attributes={"disabled": True, "class": "CustomAllreduce", "world_size": 1})  # fmt: skip
    one = rank(0, 1)

    assert "custom_all_reduce" not in rules(failed(replace(one, steps=(*one.steps, step))))


def test_where_the_idle_card_s_memory_went_re_adds() -> None:
    found = of("before_the_weights", failed(with_way(rank(0, 1))))

    numbers = found.numbers
    taken = [
        numbers[f"{name}_bytes"] for name in ("context", "world_group", "communicators", "custom_allreduce", "other")
    ]
    assert numbers["pre_load_bytes"] == pytest.approx(numbers["idle_free_bytes"] - sum(taken), abs=2)
    assert found.formula == (
        "94.974 - 0.508 CUDA context - 0.090 world group - 0.343 communicators - 0.034 custom all-reduce + 0.001 given"
        " back = 94.000 GiB"
    )


def test_without_a_reading_of_the_idle_card_its_total_stands_in_only_where_it_adds_up() -> None:
    silent = with_way(rank(0, 1), idle_free_bytes=None, other_bytes=None)
    known = replace(silent, pre_load=replace(silent.pre_load or WAY, pre_load_bytes=_left(silent)))

    assert of("before_the_weights", failed(silent)).formula is None
    assert "is what CUDA gives of the card" in of("before_the_weights", failed(known)).says


def _left(process: Process) -> int:
    way, device = process.pre_load, process.device
    assert way is not None
    assert device is not None
    parts = (way.context_bytes, way.world_group_bytes, way.communicators_bytes, way.custom_allreduce_bytes)
    return (device.total_bytes or 0) - sum(part or 0 for part in parts)
