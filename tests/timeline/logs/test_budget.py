"""The budget of a rank from a log's figures."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.arithmetic import could_be_pre_load
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.model import Budget, Run
from tests.timeline.logs.making import GIB, HUNDREDTH, amount, fact, healthy, log


def _budget(run: Run, rank: int = 0) -> Budget:
    found = [process for process in run.processes if process.label is not None][rank].workers[0].budget
    assert found is not None
    return found


def _weights(available: str, usage: str) -> Fact:
    return fact("TP0", "weights_end", model_class="DeepseekV4ForCausalLM", avail=available, mem_usage=usage)


def test_pre_load_is_what_was_free_after_the_weights_plus_what_they_took_where_no_line_says_it() -> None:
    refused = fact("", "no_memory", family="weights", fraction=0.88, minimum=0.9113)
    budget = _budget(run_of(log(_weights("12.25", "125.65"), refused)))
    available, weights = amount("12.25"), amount("125.65")
    pre_load = available.bytes + weights.bytes
    assert budget.pre_load_bytes == pre_load
    assert budget.precisions["pre_load_bytes"] == 2 * HUNDREDTH
    assert budget.pre_load_basis == "printed"
    assert budget.minimum_viable_fraction == pytest.approx(1 - available.bytes / pre_load)
    assert budget.minimum_viable_fraction_printed == 0.9113
    assert budget.static_budget_bytes == pytest.approx(0.88 * pre_load, abs=1)
    assert budget.rest_bytes == pytest.approx(available.bytes - pre_load * (1 - 0.88), abs=1)
    assert budget.state == "error"


def test_every_sum_carries_the_precision_of_its_terms() -> None:
    budget = _budget(run_of(log(*healthy("TP0")), {"mem_fraction_static": 0.75}))
    assert budget.precisions["available_bytes"] == HUNDREDTH
    assert budget.precisions["slack_bytes"] == pytest.approx(0.25 * HUNDREDTH, abs=1)
    assert budget.precisions["rest_bytes"] == pytest.approx(1.25 * HUNDREDTH, abs=1)
    assert budget.precision_bytes == max(v for name, v in budget.precisions.items() if name.endswith("_bytes"))


def test_the_least_over_the_ranks_counts_and_a_rank_keeps_its_own() -> None:
    facts = healthy("TP0") + healthy("TP1")
    facts[3] = fact("TP0", "weights_end", model_class="L", avail="59.00", mem_usage="21.00")
    budget = _budget(run_of(log(*facts)), rank=1)
    assert (budget.available_bytes, budget.available_local_bytes) == (59 * GIB, 60 * GIB)


def test_without_a_fraction_the_budget_has_no_slack_and_says_why() -> None:
    budget = _budget(run_of(log(*healthy("TP0"))))
    assert budget.mem_fraction_static is None
    assert budget.slack_bytes is None
    assert budget.mem_fraction_static_reason == "the log does not name it"


@pytest.mark.parametrize(
    ("assumed", "arguments", "message", "expected"),
    [
        ({"mem_fraction_static": 0.9}, None, None, (0.9, "told")),
        ({"mem_fraction_static": 0.9}, {"mem_fraction_static": 0.8}, None, (0.8, "arguments")),
        ({"mem_fraction_static": 0.9}, {"mem_fraction_static": 0.8}, 0.2, (0.2, "message")),
    ],
)
def test_sglangs_own_word_on_the_fraction_counts_more_than_the_users(
    assumed: dict[str, Any], arguments: dict[str, Any] | None, message: float | None, expected: tuple[float, str]
) -> None:
    facts = healthy("TP0")[:4]
    if arguments is not None:
        facts.insert(0, fact("", "server_args", arguments=arguments))
    if message is not None:
        facts.append(fact("TP0", "no_memory", family="fraction", fraction=message))
    budget = _budget(run_of(log(*facts), assumed))
    assert (budget.mem_fraction_static, budget.mem_fraction_static_basis) == expected


def test_tokens_that_contradict_the_printed_pre_load_memory_give_the_implied_one() -> None:
    # 80.00 was printed; with 81.00 before the weights, 60 - 81 x 0.25 = 39.75 GiB of tokens fit.
    implied, fraction = 81 * GIB, 0.75
    rest = 60 * GIB - implied * (1 - fraction)
    printed = f"{rest / GIB / 2:.2f}"
    facts = healthy("TP0", tokens=1_000_000)
    facts[4] = fact("TP0", "kv_alloc", cache="KV Cache", tokens=1_000_000, k=printed, v=printed, bound=False)
    arguments = {"mem_fraction_static": fraction, "max_total_tokens": None, "tp_size": 1}
    budget = _budget(run_of(log(fact("", "server_args", arguments=arguments), *facts)))
    assert budget.pre_load_basis == "implied"
    assert budget.pre_load_bytes == pytest.approx(implied, abs=budget.precisions["pre_load_bytes"])
    assert budget.pre_load_local_bytes == 80 * GIB
    assert budget.verified is None


@pytest.mark.parametrize(("before", "is_one"), [(82.4, True), (83.0, False), (120.0, False)])
def test_an_implied_pre_load_memory_far_from_the_printed_one_is_not_used(before: float, is_one: bool) -> None:
    fraction = 0.75
    printed = f"{(60 - before * (1 - fraction)) / 2:.2f}"
    facts = healthy("TP0", tokens=1_000_000)
    facts[4] = fact("TP0", "kv_alloc", cache="KV Cache", tokens=1_000_000, k=printed, v=printed, bound=False)
    arguments = {"mem_fraction_static": fraction, "max_total_tokens": None, "tp_size": 1}
    budget = _budget(run_of(log(fact("", "server_args", arguments=arguments), *facts)))
    assert (budget.pre_load_basis == "implied") == is_one
    assert is_one or (budget.pre_load_bytes == 80 * GIB and "another fraction" in (budget.pre_load_reason or ""))


def test_a_pre_load_memory_of_more_than_the_card_that_an_error_names_is_none() -> None:
    assert could_be_pre_load(81 * GIB, 0, 80 * GIB, None)
    assert not could_be_pre_load(81 * GIB, 0, 80 * GIB, 81 * GIB)


def test_tokens_that_agree_with_the_printed_pre_load_memory_verify_it() -> None:
    rest = 60 * GIB - 80 * GIB * 0.25
    printed = f"{rest / GIB / 2:.2f}"
    facts = healthy("TP0", tokens=1_000_000)
    facts[4] = fact("TP0", "kv_alloc", cache="KV Cache", tokens=1_000_000, k=printed, v=printed, bound=False)
    arguments = {"mem_fraction_static": 0.75, "max_total_tokens": None, "tp_size": 1}
    budget = _budget(run_of(log(fact("", "server_args", arguments=arguments), *facts)))
    assert (budget.pre_load_basis, budget.verified) == ("printed", True)


def test_a_cap_by_max_total_tokens_implies_no_pre_load_memory() -> None:
    facts = healthy("TP0", tokens=16384)
    budget = _budget(run_of(log(*facts), {"mem_fraction_static": 0.75, "max_total_tokens": 16384}))
    assert (budget.pre_load_basis, budget.pre_load_bytes) == ("printed", 80 * GIB)


def test_negative_profiled_tokens_are_the_result_of_the_budget() -> None:
    cap = fact("TP0", "kv_cap", asked=131072, profiled=-561981)
    run = run_of(log(_weights("21.73", "166.59"), cap))
    budget = _budget(run)
    assert (budget.result, budget.state) == (-561981, "error")
    assert (run.outcome, run.failed_phase) == ("failed", "kv.profile")


def test_a_message_alone_gives_a_budget_with_its_fraction_and_nothing_else() -> None:
    run = run_of(log(fact("", "no_memory", family="fraction", fraction=0.2)))
    (process,) = run.processes
    budget = process.workers[0].budget
    assert process.label is None and budget is not None
    assert (budget.mem_fraction_static, budget.available_bytes, budget.pre_load_bytes) == (0.2, None, None)
    assert (run.outcome, run.failed_phase) == ("failed", "kv.profile")


@given(st.integers(1, 20_000), st.integers(0, 20_000), st.integers(1, 99))
def test_what_is_left_is_within_its_precision_of_what_exact_figures_give(
    available: int, weights: int, percent: int
) -> None:
    """Whatever two decimals hid, the rest that they give is no further off than it says."""
    fraction = percent / 100
    hidden = HUNDREDTH - 1
    refused = fact("TP0", "no_memory", family="weights", fraction=fraction)
    facts = [_weights(f"{available / 100:.2f}", f"{weights / 100:.2f}"), refused]
    budget = _budget(run_of(log(*facts)))
    for sign in (-1, 1):
        true_available = amount(f"{available / 100:.2f}").bytes + sign * hidden
        true_pre_load = true_available + amount(f"{weights / 100:.2f}").bytes - sign * hidden
        true_rest = true_available - true_pre_load * (1 - fraction)
        assert budget.rest_bytes is not None
        assert abs(budget.rest_bytes - true_rest) <= budget.precisions["rest_bytes"] + 2


def test_a_draft_that_is_loaded_first_shares_the_budget_of_a_token() -> None:
    facts = healthy("TP0", tokens=1_000_000)
    draft = [fact("TP0", kind, avail="59.00", model_class="D") for kind in ("weights_begin", "weights_end")]
    pool = fact("TP0", "kv_alloc", cache="KV Cache", tokens=1_000_000, k="1.00", v="1.00", bound=False)
    late = [*facts[:6], *draft, pool, *facts[6:]]
    first = [*facts[:4], *draft, *facts[4:6], pool, fact("TP0", "pool_end", avail="7.00"), *facts[6:]]
    alone = _budget(run_of(log(*late))).bytes_per_token
    shared = _budget(run_of(log(*first))).bytes_per_token
    assert alone is not None and shared is not None
    assert alone == pytest.approx(50 * GIB / 1_000_000, rel=1e-4)
    assert shared == pytest.approx(52 * GIB / 1_000_000, rel=1e-4)
