"""The rules of scaling, each by an example that can be re-added by hand, and what holds of any input."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.scaling import (
    BLOCK,
    KV_DTYPES,
    MIB,
    MOST_SIZES,
    QUANTIZATIONS,
    RULES,
    blocks,
    capture_sizes,
    element_bytes,
    graph_bytes,
    list_bytes,
    parameter_bytes,
    pool_bytes,
    request_slots,
    scaled,
    split,
)
from tests.recordings import replay

HEAD = 128 * 2 * 2
"""Bytes of one KV head of 128 in bfloat16, keys and values."""


def test_the_recorded_pools_have_the_bytes_that_the_rules_give() -> None:
    for name in ("car", "oom-capture", "leftover"):
        for rank in replay.ranks(name):
            kv = rank["workers"][0]["kv"]
            pool = next(one for one in kv["pools"] if one["kind"] == "MHA")
            assert pool["bytes"] == pool_bytes(kv["tokens"], pool["page_size"], Fraction(kv["bytes_per_token"]))


def test_what_the_recorded_pools_took_of_the_device_are_their_tensors_in_whole_blocks() -> None:
    for name in ("car", "oom-capture", "leftover"):
        for rank in replay.ranks(name):
            kv = rank["workers"][0]["kv"]
            request, pool = kv["pools"]
            tensors = blocks(pool["bytes"], 2 * pool["layers"]) + blocks(request["bytes"])
            whole = next(one for one in rank["steps"] if (one["phase"], one["detail"]) == ("kv.pool", "all"))
            beside = whole["cost_bytes"] - tensors - blocks(list_bytes(kv["tokens"], 1))
            assert -BLOCK <= beside <= 0  # a list below 10 MiB may find room in a block that is there


def test_the_recorded_number_of_requests_is_the_rules() -> None:
    for name in ("car", "oom-capture", "leftover"):
        kv = replay.ranks(name)[0]["workers"][0]["kv"]
        assert kv["pools"][0]["tokens"] == request_slots(kv["tokens"], 8192, None)


@pytest.mark.parametrize(
    ("tokens", "given_", "slots"),
    [(1 << 20, None, 4096), (1000, None, 500), (1 << 15, None, 2048), (1 << 20, 256, 256), (300, 256, 150)],
)
def test_requests_are_the_given_ones_or_by_the_tokens_and_at_most_half_of_them(
    tokens: int, given_: int | None, slots: int
) -> None:
    assert slots == request_slots(tokens, 8192, given_)


def test_requests_are_shared_by_the_workers_of_dp_attention() -> None:
    assert 64 == request_slots(1 << 20, 8192, 256, dp=4)


def test_a_release_before_the_cap_may_have_more_requests_than_half_the_tokens() -> None:
    assert 2048 == request_slots(1000, 8192, None, halved=False)


@pytest.mark.parametrize(("heads", "old", "new"), [(8, 2, 4), (8, 4, 16), (8, 8, 16), (1, 1, 8), (8, 16, 2)])
def test_a_rank_has_its_share_of_the_heads_and_one_at_least(heads: int, old: int, new: int) -> None:
    of_old, of_new = (max(heads // tp, 1) * HEAD for tp in (old, new))

    assert of_new == scaled(of_old, split(old, new, heads))


@given(st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from((1, 2, 4, 8, 16)), st.integers(1, 1 << 40))
def test_splitting_there_and_back_is_no_change(one: int, other: int, amount: int) -> None:
    assert 1 == split(one, other) * split(other, one)
    assert amount == scaled(amount, split(one, one))


@pytest.mark.parametrize("dtype", [name for name in KV_DTYPES if name != "auto"])
def test_each_kv_dtype_that_can_be_asked_for_has_a_size(dtype: str) -> None:
    assert element_bytes(dtype) == element_bytes(f"torch.{dtype}")
    assert (element_bytes(dtype) or 0) > 0


@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_each_quantization_that_can_be_asked_for_makes_weights_smaller(name: str) -> None:
    assert (parameter_bytes(name, None) or 99) < (parameter_bytes(None, "bfloat16") or 0)


def test_a_type_that_nobody_knows_has_no_size() -> None:
    assert element_bytes("complex64") is None
    assert element_bytes(None) is None
    assert parameter_bytes("secret", "bfloat16") is None


@given(st.integers(0, 1 << 40), st.integers(1, 500))
def test_blocks_hold_the_tensors_and_less_than_a_block_more_of_each(amount: int, tensors: int) -> None:
    taken = blocks(amount, tensors)

    assert taken % BLOCK == 0
    assert amount <= taken < amount + tensors * BLOCK + tensors


@given(st.integers(1, 4096), st.booleans())
def test_the_sizes_of_graphs_grow_up_to_the_largest(most: int, draft: bool) -> None:
    sizes = capture_sizes(most, draft=draft)

    assert most == max(sizes)
    assert list(sizes) == sorted(set(sizes))
    assert set(sizes) - {most} <= set(capture_sizes(most + 1, draft=draft))


def test_a_largest_size_that_is_none_has_no_sizes() -> None:
    assert () == capture_sizes(0)
    assert () == capture_sizes(MOST_SIZES + 1)


def test_the_recorded_graphs_have_the_sizes_of_the_rule() -> None:
    step = replay.step(replay.ranks("car")[0], "graph.capture")

    assert step["attributes"]["sizes"] == list(capture_sizes(8))


def test_graphs_grow_with_the_number_of_their_sizes() -> None:
    few, many = (len(capture_sizes(most)) for most in (8, 64))

    assert 62 * MIB == graph_bytes(62 * MIB, few, few)
    assert 62 * MIB * many // few == graph_bytes(62 * MIB, few, many)


def test_each_rule_is_a_sentence() -> None:
    assert [] == [name for name, rule in RULES.items() if not rule.says or rule.says.endswith(".")]
