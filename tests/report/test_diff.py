"""The comparison as text: its tables fit the page, and what is alike is told once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.diff.compare import compare
from sglang_probe.report.diff import diff_text
from sglang_probe.report.diff_grid import Line, grid
from tests.explain.diff.pairs import FIRST, SECOND, recorded

ANSI = re.compile("\x1b\\[[0-9;]*m")
words = st.text("abc -.0123456789", max_size=40)


@given(st.integers(1, 12), st.data(), st.integers(80, 120))
def test_a_table_of_any_number_of_sides_fits_the_page_and_loses_no_column(
    sides: int, data: st.DataObject, width: int
) -> None:
    names = tuple(f"side{number}" for number in range(sides))
    cells = st.tuples(*[words] * sides)
    rows = [Line(data.draw(words), data.draw(cells)) for _ in range(3)]
    lines = [line.plain for line in grid(Line("", names), rows, width, "  ")]

    assert [line for line in lines if len(line) > width] == []
    assert set(names) <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize("width", [80, 100, 120])
def test_colour_adds_escapes_and_changes_no_character(width: int) -> None:
    found = compare((recorded(FIRST / "car"), recorded(FIRST / "lowfrac")))
    plain, coloured = (diff_text(found, width, colour=colour) for colour in (False, True))

    assert "\x1b" not in plain
    assert coloured != plain
    assert ANSI.sub("", coloured) == plain


def test_ranks_that_differ_alike_are_told_once() -> None:
    found = compare((recorded(SECOND / "car"), recorded(SECOND / "leftover")))
    text = diff_text(found)

    assert len(found.ranks) == 2
    assert "2 ranks alike: TP0, TP1" in text
    assert text.count("last reading: foreign") == 1


def test_what_a_side_did_not_come_to_is_named_and_not_shown_as_a_change() -> None:
    text = diff_text(compare((recorded(FIRST / "car"), recorded(FIRST / "lowfrac"))))

    assert "not reached by candidate: kv.pool request" in text
    assert "last reading: KV pool" not in text
