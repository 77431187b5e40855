"""Predictions held against runs that were recorded on real GPUs."""

from __future__ import annotations

import pytest

from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Against, CannotPlan, Plan
from tests.explain.plan.making import CAR, GIB, MIB, known, made_run, recorded, value

FAILURES = "h200-x2-sglang-0.5.14-failures"
NOCAR, LOWFRAC = "h200-x2-sglang-0.5.14/nocar", "h200-x2-sglang-0.5.14/lowfrac"
OOM, LEFTOVER = f"{FAILURES}/oom-capture", f"{FAILURES}/leftover"


def against(one: str, other: str) -> tuple[Plan, dict[str, Against]]:
    made = plan(recorded(one), against=recorded(other))
    return made, {row.name: row for row in made.against}


def test_the_tokens_without_the_custom_all_reduce_are_predicted_exactly() -> None:
    made, rows = against(CAR, NOCAR)

    assert ["--disable-custom-all-reduce"] == [one.flag for one in made.changes]
    assert rows["tokens"].predicted == rows["tokens"].measured == facts_of(recorded(NOCAR)).tokens
    for name in ("pre_load_bytes", "available_bytes", "rest_bytes", "kv_pool_bytes"):
        assert 0 == rows[name].error


def test_what_was_never_measured_is_unknown_and_its_share_is_the_error() -> None:
    made, rows = against(NOCAR, CAR)
    cost = facts_of(recorded(CAR)).custom_all_reduce_bytes
    measured = rows["tokens"].measured

    assert rows["custom_allreduce_bytes"].predicted is None
    assert rows["pre_load_bytes"].error == cost
    assert measured is not None
    assert rows["tokens"].error == known(made, "tokens") - measured
    assert any("custom all-reduce's cost was not measured" in said for said in made.assumptions)


def test_another_fraction_and_larger_graphs_are_predicted_to_the_token_and_to_fail() -> None:
    made, rows = against(CAR, OOM)

    assert ["--mem-fraction-static", "--cuda-graph-max-bs"] == [one.flag for one in made.changes]
    assert 0 == rows["tokens"].error
    assert 0 == rows["kv_pool_bytes"].error
    assert made.starts is False  # and it did fail there
    assert "graph.capture" == recorded(OOM).failed_phase


def test_a_fraction_that_leaves_nothing_is_predicted_to_the_byte() -> None:
    made, rows = against(CAR, LOWFRAC)

    assert 0 == rows["rest_bytes"].error
    assert made.starts is False
    assert "empty by 0.102 GiB" in made.says[0]


@pytest.mark.parametrize(("one", "other"), [(CAR, LEFTOVER), (LEFTOVER, f"{FAILURES}/car")])
def test_others_on_the_card_are_counted_to_the_few_mib_that_nvml_leaves_out(one: str, other: str) -> None:
    _, rows = against(one, other)

    for name in ("pre_load_bytes", "available_bytes", "free_bytes"):
        error = rows[name].error
        assert error is not None
        assert abs(error) < 16 * MIB


def test_a_run_that_failed_early_is_planned_with_what_another_measured() -> None:
    alone = plan(recorded(LOWFRAC), Inputs(mem_fraction_static=0.909))
    made = plan(recorded(LOWFRAC), Inputs(mem_fraction_static=0.909), like=recorded(CAR))
    car = facts_of(recorded(CAR))

    assert value(alone, "tokens") is None
    assert "ended before it said how many bytes a token takes" in alone.says[0]
    assert car.tokens == value(made, "tokens")
    assert car.after.free == value(made, "free_bytes")
    token = made.number("bytes_per_token")
    assert token is not None
    assert "given" == token.basis


def test_a_run_of_another_tp_is_no_run_to_take_numbers_from() -> None:
    with pytest.raises(CannotPlan, match="has --tp 4, and lowfrac 2; name a run of the same model"):
        plan(recorded(LOWFRAC), like=made_run(tp=4))


def test_one_rank_has_no_communicator_and_whole_weights() -> None:
    """Measured on a machine of that kind (docs/gpu-runs.md): 1,935,299 tokens."""
    made = plan(recorded(CAR), Inputs(tp=1))

    assert 0 == value(made, "communicators_bytes")
    assert 2 * known(plan(recorded(CAR)), "weights_bytes") == value(made, "weights_bytes")
    assert value(made, "tokens") == pytest.approx(1935299, rel=0.001)


def test_half_the_element_size_is_twice_the_tokens() -> None:
    made = plan(recorded(CAR), Inputs(kv_cache_dtype="fp8_e5m2"))

    rest = known(made, "rest_bytes")
    assert rest // 16384 == value(made, "tokens")
    assert value(made, "kv_pool_bytes") == pytest.approx(rest, abs=GIB // 4)
