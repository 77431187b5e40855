"""The budget's formula: it gives what SGLang gave on real GPUs, both ways agree, more fraction is never less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.catalogue.formulas import WHAT, Formula
from sglang_probe.explain.formula import Terms, formula_of, terms_of
from sglang_probe.figures import GIB
from sglang_probe.timeline.model import Budget
from tests.recordings.replay import RUNS, ranks

amounts = st.integers(0, 200 * GIB)
fractions = st.floats(0, 1)
FORMULAS = tuple(WHAT)


def terms(available: int, pre_load: int, fraction: float, formula: Formula = "bytes", *deductions: int) -> Terms:
    return Terms(available, pre_load, fraction, deductions, None, formula)


def test_the_story_re_adds() -> None:
    story = terms(round(21.697 * GIB), round(93.999 * GIB), 0.55)

    assert story.rest_gib == pytest.approx(-20.603, abs=0.0005)
    assert story.fraction_for() == pytest.approx(0.7692, abs=0.00005)
    assert story.fraction_for(4 * GIB) == pytest.approx(0.8117, abs=0.00005)


@pytest.mark.parametrize("run", RUNS)
def test_recorded_budgets_are_reproduced_to_the_token(run: str) -> None:
    budgets = [worker["budget"] for rank in ranks(run) for worker in rank["workers"] if worker["budget"]]
    for told in budgets:
        budget = Budget(**{key: value for key, value in told.items() if key in Budget.__struct_fields__})
        known = terms_of(budget)
        assert (known is None) == (budget.available_bytes is None)
        if known is not None and budget.result is not None:
            assert known.rest_bytes == budget.rest_bytes
            assert (known.rest_bytes if budget.result_unit == "bytes" else known.tokens(1)) == budget.result


@given(amounts, amounts, fractions, fractions, st.integers(1, 1 << 20), st.sampled_from(FORMULAS))
def test_more_fraction_never_gives_fewer_tokens(
    available: int, pre_load: int, one: float, other: float, token: int, formula: Formula
) -> None:
    less, more = sorted((one, other))

    assert terms(available, pre_load, less, formula).tokens(token) <= terms(available, pre_load, more, formula).tokens(
        token
    )


@given(amounts, st.integers(GIB, 200 * GIB), st.integers(0, 100 * GIB), st.lists(st.integers(0, 10 * GIB), max_size=2))
def test_the_fraction_for_some_bytes_leaves_just_these(
    available: int, pre_load: int, wanted: int, deductions: list[int]
) -> None:
    backwards = terms(available, pre_load, 0.5, "bytes", *deductions).fraction_for(wanted)

    assert terms(available, pre_load, backwards, "bytes", *deductions).rest_bytes == pytest.approx(wanted, abs=64)


@given(amounts, st.integers(GIB, 200 * GIB), fractions, st.lists(st.integers(0, 10 * GIB), max_size=2), amounts)
def test_rest_and_what_was_taken_off_re_add_to_available(
    available: int, pre_load: int, fraction: float, deductions: list[int], floor: int
) -> None:
    known = Terms(available, pre_load, fraction, tuple(deductions), floor)

    taken = known.slack_gib * GIB + sum(deductions)
    assert known.rest_gib * GIB + taken == pytest.approx(available, abs=64)
    assert known.slack_gib * GIB >= floor


@pytest.mark.parametrize("formula", FORMULAS)
def test_each_formula_of_the_catalogue_is_known_by_its_text(formula: Formula) -> None:
    found = formula_of(Budget(formula=WHAT[formula]))

    assert found is not None
    assert WHAT[found] == WHAT[formula]


def test_a_formula_that_nobody_has_read_is_none() -> None:
    assert formula_of(Budget(formula="something else")) is None
    assert formula_of(Budget()) is None
