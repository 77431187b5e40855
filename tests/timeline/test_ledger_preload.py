"""The way from an idle card to the pre-load memory, and what the custom all-reduce costs."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_probe.timeline.model import PreLoad
from tests.timeline.cards import CARD, MIB, Card, card, process_of

TOKEN = 1 << 10


def started(rank: Card | None = None, /, **terms: Any) -> Card:
    """Return a rank whose distributed init is over; with terms, its budget is known too."""
    rank = rank or card()
    rank.worker = "target"
    with rank.collective("dist.init"):
        rank.context = rank.context or 50
        with rank.collective("dist.communicator", group="world"):
            rank.take(raw=8)
        with rank.collective("dist.communicator", group="tp:0"):
            rank.take(raw=40)
            with rank.collective("allreduce.buffers"):
                rank.take(raw=20)
        rank.take(raw=-2)
    if terms:
        with rank.step("kv.profile", **terms):
            pass
    return rank


def way_of(rank: Card) -> PreLoad:
    found = process_of(rank).pre_load
    assert found is not None
    return found


def test_every_part_of_the_way_is_told_and_it_closes() -> None:
    way = way_of(started())

    parts = (
        way.context_bytes, way.world_group_bytes, way.communicators_bytes, way.custom_allreduce_bytes, way.other_bytes
    )  # fmt: skip
    assert tuple(part * MIB for part in (50, 8, 40, 20, -2)) == parts
    assert way.idle_free_bytes == (1000 - 10 - 3) * MIB == sum(part or 0 for part in parts) + (way.pre_load_bytes or 0)
    assert (10 * MIB, 3 * MIB) == (way.driver_reserved_bytes, way.unlisted_bytes)


def test_where_nothing_was_read_before_the_context_the_start_is_unknown_and_the_rest_is_not() -> None:
    way = way_of(started(card(context=50, listed_less=6), bytes_per_token=TOKEN))

    assert (None, None, None) == (way.idle_free_bytes, way.other_bytes, way.unlisted_bytes)
    assert way.idle_free_reason == "nothing was read before this process had a CUDA context"
    assert (44 * MIB, 8 * MIB) == (way.context_bytes, way.world_group_bytes)


def test_without_a_custom_all_reduce_it_has_no_line() -> None:
    rank = card()
    rank.set_up()

    assert (None, None, None) == (
        way_of(rank).custom_allreduce_bytes,
        way_of(rank).custom_allreduce_tokens,
        way_of(rank).custom_allreduce_tokens_reason,
    )


@pytest.mark.parametrize(("slack", "share"), [(0.25, 0.75), (0.5, 1.0)])
def test_its_tokens_are_its_bytes_by_the_fraction_unless_a_floor_holds_the_slack(slack: float, share: float) -> None:
    pre_load = 871 * MIB
    terms: dict[str, Any] = {"pre_load_bytes": pre_load, "mem_fraction_static": 0.75, "bytes_per_token": TOKEN}

    way = way_of(started(**terms, slack_bytes=round(pre_load * slack)))

    assert way.custom_allreduce_tokens == pytest.approx(20 * MIB * share / TOKEN)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({}, "no budget was recorded"),
        ({"bytes_per_token": TOKEN}, "no budget was recorded"),
        ({"mem_fraction_static": 0.5}, "the bytes of a token are unknown"),
    ],
)
def test_where_its_tokens_are_unknown_the_reason_is_given(terms: dict[str, Any], why: str) -> None:
    way = way_of(started(**terms))

    assert (None, why) == (way.custom_allreduce_tokens, way.custom_allreduce_tokens_reason)


def test_where_memory_of_others_may_be_in_it_that_is_said() -> None:
    assert way_of(started()).not_separable == "no_process_list"
    assert way_of(started(bytes_per_token=TOKEN)).not_separable is None


def test_there_is_no_way_on_a_cpu_or_before_the_distributed_init_is_over() -> None:
    on_cpu = started(card(device={**CARD, "kind": "cpu"}))
    interrupted = card()
    interrupted.begin("dist.init")

    assert process_of(on_cpu).pre_load is process_of(interrupted).pre_load is None
