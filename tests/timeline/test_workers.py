"""A worker's weights, budget and KV cache."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from sglang_probe.timeline.model import Budget, Kv, Worker
from sglang_probe.timeline.pools import limit
from tests.collect.building import GIB, Raised, Writer
from tests.collect.starting import Shape, budget, launch
from tests.timeline.making import ranks, run_of, step


def _worker(shape: Shape) -> Worker:
    (worker,) = ranks(run_of(launch([shape])))[0].workers
    return worker


def _budget(shape: Shape) -> Budget:
    found = _worker(shape).budget
    assert found is not None
    return found


def _kv(shape: Shape) -> Kv:
    found = _worker(shape).kv
    assert found is not None
    return found


def test_the_weights_cost_what_they_took_from_the_device() -> None:
    shape = Shape(weights=7 * GIB)

    worker = _worker(shape)

    assert (shape.weights, shape.weights, None) == (
        worker.weights_bytes, worker.weights_torch_bytes, worker.weights_reason
    )


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (Shape(fail_in="weights.load"), "weights.load did not end well (error)"),
        (Shape(fail_in="dist.init"), "weights.load never began"),
        (Shape(stop_in="weights.load"), "weights.load did not end well (open)"),
    ],
)
def test_weights_that_were_not_loaded_are_unknown_with_a_reason(shape: Shape, reason: str) -> None:
    worker = _worker(shape)

    assert (None, reason) == (worker.weights_bytes, worker.weights_reason)


def test_the_budget_is_what_the_profile_said() -> None:
    shape = Shape()
    free = 96 * GIB - shape.context - shape.communicator - shape.allreduce
    terms = budget(free, free - shape.weights, shape)

    found = _budget(shape)

    assert terms == {key: getattr(found, key) for key in terms}
    assert (free, free - shape.weights) == (found.pre_load_local_bytes, found.available_local_bytes)
    assert "ok" == found.state


def test_the_fraction_given_stands_beside_the_one_in_force() -> None:
    launcher, rank = launch([Shape(fraction=0.8)])
    launcher.events[1]["attributes"]["given"]["--mem-fraction-static"] = "0.55"

    found = ranks(run_of([launcher, rank]))[0].workers[0].budget

    assert found is not None
    assert (0.8, 0.55) == (found.mem_fraction_static, found.mem_fraction_static_given)


def test_a_budget_without_a_profile_has_the_pre_load_memory_and_says_what_is_missing() -> None:
    shape = Shape(fail_in="weights.load")

    found = _budget(shape)

    assert 96 * GIB - shape.context - shape.communicator - shape.allreduce == found.pre_load_bytes
    assert (None, None, None) == (found.available_bytes, found.rest_bytes, found.state)
    assert "kv.profile never began" == found.minimum_viable_fraction_reason == found.verified_reason


def test_a_profile_that_raised_still_has_its_terms() -> None:
    launcher, rank = launch([Shape(fail_in="weights.load")])
    rank.stack, rank.worker = ["1"], "target"
    terms = budget(94 * GIB, 22 * GIB, Shape(fraction=0.55)) | {"result": None}
    with suppress(Raised), rank.step("kv.profile") as said:
        said.update(terms)
        raise Raised("builtins.ValueError", "Loaded weights leave no GPU memory")

    found = ranks(run_of([launcher, rank]))[0].workers[0].budget

    assert found is not None
    assert ("error", terms["rest_bytes"]) == (found.state, found.rest_bytes)
    assert found.minimum_viable_fraction == pytest.approx(1 - 22 / 94)


def test_values_of_the_wrong_type_are_unknown() -> None:
    launcher, rank = launch([Shape()])
    profile = next(one for one in rank.events if one["event"] == "sglang.memory.kv.profile.end")
    profile["attributes"] |= {"available_bytes": "much", "deductions": [1], "verified": "yes", "rest_bytes": True}

    found = ranks(run_of([launcher, rank]))[0].workers[0].budget

    assert found is not None
    assert (None, {}, None, None) == (found.available_bytes, found.deductions, found.verified, found.rest_bytes)


def test_the_kv_cache_has_its_tokens_and_bytes_without_the_request_table() -> None:
    shape = Shape()

    kv = _kv(shape)

    assert kv.tokens is not None
    assert kv.tokens * shape.bytes_per_token == kv.bytes
    assert ["request", "MHA"] == [pool.kind for pool in kv.pools]
    assert (shape.bytes_per_token, "memory") == (kv.bytes_per_token, kv.limited_by)


def test_a_cap_of_the_user_limits_the_kv_cache() -> None:
    kv = _kv(Shape(max_total_tokens=4096))

    assert (4096, "max_total_tokens") == (kv.tokens, kv.limited_by)


def test_a_pool_made_of_pools_is_not_counted_twice() -> None:
    writer = _hybrid()

    kv = run_of([writer]).processes[0].workers[0].kv

    assert kv is not None
    assert [("MHA", GIB), ("MHA", 2 * GIB)] == [(pool.kind, pool.bytes) for pool in kv.pools]
    assert 3 * GIB == kv.bytes


def _hybrid() -> Writer:
    writer = launch([Shape(fail_in="dist.init")])[1]
    writer.worker = "target"
    with writer.step("kv.pool", pool="all"), writer.step("kv.pool", pool="SWA", bytes=None):
        writer.sample("kv.pool", pool="MHA", bytes=GIB)
        writer.sample("kv.pool", pool="MHA", bytes=2 * GIB)
    return writer


def test_a_pool_that_is_resized_after_capture_counts_once_with_its_last_size() -> None:
    launcher, writer = launch([Shape()])
    writer.worker = "target"
    writer.sample("kv.pool", pool="SWA", bytes=8 * GIB, pool_id="a")
    with writer.step("kv.pool", pool="all", max_total_num_tokens=1234, resized=True, bytes_per_token=None):
        writer.sample("kv.pool", pool="SWA", bytes=2 * GIB, pool_id="a")

    kv = ranks(run_of([launcher, writer]))[0].workers[0].kv

    assert kv is not None
    assert [2 * GIB] == [pool.bytes for pool in kv.pools if pool.kind == "SWA"]
    assert (1234, "post_capture", Shape().bytes_per_token) == (kv.tokens, kv.limited_by, kv.bytes_per_token)


def test_the_part_for_the_window_layers_is_told_from_the_full_ones() -> None:
    writer = launch([Shape(fail_in="dist.init")])[1]
    writer.worker = "target"
    with writer.step("kv.pool", pool="all"), writer.step("kv.pool", pool="SWA", pool_id="c", window_pool_id="b"):
        writer.sample("kv.pool", pool="MHA", bytes=2 * GIB, pool_id="a")
        writer.sample("kv.pool", pool="MHA", bytes=GIB, pool_id="b")

    kv = run_of([writer]).processes[0].workers[0].kv

    assert kv is not None
    assert [("MHA", 2 * GIB), ("SWA", GIB)] == [(pool.kind, pool.bytes) for pool in kv.pools]


def test_a_drafts_pool_that_the_target_resizes_stays_the_drafts() -> None:
    launcher, writer = launch([Shape()])
    writer.worker, writer.draft_index = "draft", 0
    writer.sample("kv.pool", pool="MHA", bytes=8 * GIB, pool_id="d")
    writer.worker, writer.draft_index = "target", None
    writer.sample("kv.pool", pool="MHA", bytes=2 * GIB, pool_id="d")

    target, draft = ranks(run_of([launcher, writer]))[0].workers

    assert target.kv is not None and draft.kv is not None
    assert [2 * GIB] == [pool.bytes for pool in draft.kv.pools]
    assert target.kv.bytes == _kv(Shape()).bytes


def test_the_buffers_of_lora_adapters_are_not_the_models_weights() -> None:
    launcher, writer = launch([Shape(weights=7 * GIB)])
    writer.worker = "target"
    with writer.step("weights.load", cost=GIB, part="lora"):
        pass

    process = ranks(run_of([launcher, writer]))[0]

    assert 7 * GIB == process.workers[0].weights_bytes
    assert "lora" == process.steps[-1].detail


def test_pools_of_unknown_size_make_the_sum_unknown() -> None:
    writer = _hybrid()
    writer.worker = "target"
    writer.sample("kv.pool", pool="DSA", bytes=None)

    kv = run_of([writer]).processes[0].workers[0].kv

    assert kv is not None
    assert kv.bytes is None


def test_a_draft_is_a_worker_of_its_own() -> None:
    launcher, rank = launch([Shape(stop_in="attention.init")])
    rank.worker, rank.draft_index = "draft", 0
    with rank.step("weights.load", cost=2 * GIB):
        pass
    with rank.step("kv.pool", pool="all", max_total_num_tokens=1000):
        pass

    target, draft = ranks(run_of([launcher, rank]))[0].workers

    assert ("target", None, "draft", 0) == (target.worker, target.draft_index, draft.worker, draft.draft_index)
    assert (2 * GIB, None) == (draft.weights_bytes, draft.budget)
    assert draft.kv is not None
    assert "target" == draft.kv.limited_by


_WHOLE = {"profiled_tokens": 1000, "page_size": 16}


@pytest.mark.parametrize(
    ("whole", "tokens", "stages", "limited_by"),
    [
        (_WHOLE, 992, 1, "memory"),
        (_WHOLE, 992, 2, "memory"),
        (_WHOLE, 800, 2, "pp_min"),
        (_WHOLE, 800, 1, None),
        (_WHOLE | {"max_total_tokens_given": 500}, 496, 1, "max_total_tokens"),
        (_WHOLE | {"max_total_tokens_given": 5000}, 992, 1, "memory"),
        (_WHOLE | {"max_total_tokens_given": 500}, 400, 2, "pp_min"),
        ({"max_total_tokens_given": 500}, 500, 1, "max_total_tokens"),
        ({}, 500, 1, None),
        (_WHOLE | {"full_max_total_num_tokens": 900}, 992, 1, None),
        (_WHOLE, None, 1, None),
    ],
)
def test_what_limited_the_tokens_is_told_or_the_reason_why_not(
    whole: dict[str, Any], tokens: int | None, stages: int, limited_by: str | None
) -> None:
    found, reason = limit(whole, tokens, "target", True, stages)

    assert limited_by == found
    assert (limited_by is None) == (reason is not None)


def test_the_local_figures_stand_beside_the_minimum_over_ranks() -> None:
    launcher, first, second = launch([Shape(), Shape()])
    for writer in (first, second):
        ended = next(one for one in writer.events if one["event"] == "sglang.memory.dist.init.end")
        ended["attributes"]["pre_load_bytes"] = 40 * GIB
        profile = next(one for one in writer.events if one["event"] == "sglang.memory.kv.profile.end")
        profile["attributes"]["pre_load_bytes"] = 40 * GIB

    for process in ranks(run_of([launcher, first, second])):
        found = process.workers[0].budget
        assert found is not None
        assert (40 * GIB, step(process, "dist.init").free_bytes) == (found.pre_load_bytes, found.pre_load_local_bytes)
