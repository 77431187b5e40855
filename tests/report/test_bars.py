"""The bar of a card's memory: told apart by letters, in proportion, and never wider than the page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.report.bars import PARTS, bar

GIB = 1 << 30


def test_letters_alone_tell_the_parts_apart() -> None:
    assert len({part.letter for part in PARTS}) == len(PARTS)
    assert len({part.style for part in PARTS}) == len(PARTS)


def test_a_bar_is_in_proportion() -> None:
    drawn = bar([GIB, 2 * GIB, 0, 0, None, GIB], 80)
    assert drawn is None  # what else there is, is not known

    drawn = bar([GIB, 2 * GIB, None, None, 0, GIB], 44)
    assert drawn is not None
    assert drawn.plain == f"  [{'W' * 10}{'K' * 20}{'.' * 10}]"


@given(st.lists(st.integers(-GIB, 200 * GIB), min_size=len(PARTS), max_size=len(PARTS)), st.integers(20, 200))
def test_a_bar_fills_the_page_whatever_is_in_it(amounts: list[int], width: int) -> None:
    drawn = bar(amounts, width)

    assert (drawn is None) == (max(amounts) <= 0)
    assert drawn is None or len(drawn.plain) == width
