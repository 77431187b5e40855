"""Figures as printed: in bytes, and good to half of their last unit."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.logs.amount import GB_DECIMAL, GIB, MIB, amount
from sglang_probe.collect.logs.model import Amount


def test_a_figure_of_two_decimals_is_good_to_half_a_hundredth_of_its_unit() -> None:
    assert Amount(bytes=23332409836, precision_bytes=5368710, printed="21.73") == amount("21.73")


@given(st.integers(-(1 << 45), 1 << 45), st.sampled_from([GIB, MIB, GB_DECIMAL]), st.integers(0, 6))
def test_what_a_program_rounded_lies_within_the_precision(size: int, unit: int, decimals: int) -> None:
    read = amount(f"{Decimal(size) / unit:.{decimals}f}", unit)

    assert read is not None
    assert abs(read.bytes - size) <= read.precision_bytes + 1  # both ends are rounded to a byte


@given(st.floats(0, 1e4, allow_nan=False), st.sampled_from([GIB, MIB]))
def test_an_unrounded_float_is_read_as_the_decimal_that_it_shows(figure: float, unit: int) -> None:
    read = amount(repr(figure), unit)

    if read is not None:  # beyond 40 decimals nothing is a size
        assert abs(read.bytes - Fraction(repr(figure)) * unit) <= Fraction(1, 2)


@pytest.mark.parametrize("text", ["", "nan", "inf", "1.2.3", "1,5", "twelve", "0x10", "9" * 400, "1e999"])
def test_what_is_no_number_is_no_amount(text: str) -> None:
    assert amount(text) is None


def test_a_setting_that_no_program_rounded_is_exact() -> None:
    assert Amount(bytes=4 * GIB, precision_bytes=0, printed="4") == amount("4", exact=True)
