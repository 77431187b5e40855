"""Titles say what a finding is about, and figures are never printed as nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.model import Finding
from sglang_probe.explain.titles import NOT_WEIGHTS, TITLES, title_of
from sglang_probe.figures import fraction

GIB = 1 << 30


@pytest.mark.parametrize(("weights", "title"), [(1, NOT_WEIGHTS), (60, TITLES["weights_exceed_budget"])])
def test_a_budget_that_other_memory_used_up_is_not_called_one_of_weights(weights: int, title: str) -> None:
    numbers = {"weights_bytes": weights * GIB, "pre_load_bytes": 90 * GIB, "available_bytes": 20 * GIB}
    found = Finding(
        rule="weights_exceed_budget", severity="error", says="", confidence="certain", numbers=numbers
    )

    assert title_of(found) == title


@given(st.floats(min_value=1e-300, max_value=0.9999, allow_subnormal=False))
def test_a_fraction_that_is_not_zero_is_not_printed_as_zero(value: float) -> None:
    shown = fraction(value)

    assert float(shown) > 0
    assert abs(float(shown) - value) <= 5e-7


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0.000"), (0.55, "0.550"), (1e-7, "0.0000001"), (1.25e-8, "0.0000000125")]
)
def test_a_fraction_has_as_many_decimals_as_show_it(value: float, shown: str) -> None:
    assert fraction(value) == shown
