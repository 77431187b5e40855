"""Figures as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe import figures


@given(st.integers(min_value=-(1 << 50), max_value=1 << 50))
def test_gib_is_right_to_half_of_its_last_decimal(count: int) -> None:
    assert float(figures.gib(count)) == pytest.approx(count / (1 << 30), abs=0.00051)
    assert figures.gib(count) != "-0.000"


@given(st.floats(min_value=0, max_value=99999))
def test_seconds_fit_their_column(duration: float) -> None:
    shown = figures.seconds(duration)

    assert len(shown) <= len("99.99")
    assert float(shown) == pytest.approx(duration, abs=0.0005, rel=0.0006)


@pytest.mark.parametrize("show", [figures.gib, figures.seconds, figures.fraction, figures.number])
def test_unknown_is_a_dash_and_never_a_zero(show: object) -> None:
    assert callable(show)
    assert show(None) == figures.UNKNOWN
    assert show(0) != figures.UNKNOWN


@pytest.mark.parametrize(
    ("value", "shown"), [(0.55, "0.550"), (0.8825, "0.8825"), (1, "1.000"), (0.123456789, "0.123457")]
)
def test_a_fraction_shows_the_decimals_it_has(value: float, shown: str) -> None:
    assert figures.fraction(value) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (12345, "12,345 files")])
def test_a_count_agrees_with_its_noun(count: int, shown: str) -> None:
    assert figures.counted(count, "file") == shown


@pytest.mark.parametrize(
    ("names", "shown"), [(["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more"), ([], "")]
)
def test_a_long_list_says_how_much_longer_it_is(names: list[str], shown: str) -> None:
    assert figures.listed(names, 2) == shown


sizes = st.integers(min_value=-(1 << 40), max_value=1 << 40)


@given(st.lists(sizes, min_size=1, max_size=6), sizes)
def test_parts_are_printed_so_that_they_re_add(parts: list[int], start: int) -> None:
    end = start - sum(parts)
    printed = figures.shares(parts, start, end)

    assert float(figures.gib(end)) == pytest.approx(float(figures.gib(start)) - sum(map(float, printed)), abs=1e-6)
    assert [float(one) for one in printed] == pytest.approx([part / (1 << 30) for part in parts], abs=0.0011)


@given(sizes, sizes)
def test_a_sum_is_that_of_the_figures_printed(one: int, other: int) -> None:
    added = float(figures.added(one, other))

    assert added == pytest.approx(float(figures.gib(one)) + float(figures.gib(other)), abs=1e-6)
