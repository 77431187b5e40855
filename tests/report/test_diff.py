"""The comparison as text: its tables fit the page, and what is alike is told once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Row
from sglang_probe.report.diff import diff_text
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.diff_made import made_lines
from sglang_probe.report.diff_ranks import MOST_BLOCKS
from sglang_probe.timeline.model import Run
from tests.collect.starting import Shape
from tests.explain.diff.pairs import EXPERIMENTS, FIRST, GIB, OUTWEIGHED, SECOND, made, recorded

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


def test_what_is_part_of_the_pre_load_memory_never_hangs_under_another_row() -> None:
    one, other = OUTWEIGHED
    text = diff_text(compare((made(*one), made(*other, run_id="two"))))
    budget = text.partition("What changed the budget")[2].partition("What it comes to")[0]
    names = [line[:24].rstrip() for line in budget.splitlines()]

    parts = [place for place, name in enumerate(names) if name in {"    CUDA context", "    communicators"}]
    assert parts
    assert "  pre-load memory" == names[parts[0] - 1]


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


def test_what_changed_comes_out_of_the_figures_beside_it() -> None:
    text = diff_text(compare((recorded(EXPERIMENTS / "car"), recorded(EXPERIMENTS / "maxbs64"))))
    rows = re.findall(r"(?m)^ +(?:last reading|budget): .*? ([\d.]+) +([\d.]+) +([+-][\d.]+)$", text)

    assert len(rows) > 5
    assert [one for one in rows if round(float(one[1]) - float(one[0]), 3) != float(one[2])] == []


def test_no_sentence_stands_twice() -> None:
    for name in ("maxbs64", "oom-capture-size", "fraction80", "tp1"):
        found = compare((recorded(EXPERIMENTS / "car"), recorded(EXPERIMENTS / name)))
        text = " ".join(diff_text(found).split())
        assert [said for said in found.says if text.count(said) != 1] == []


def ranks(weights: list[int], *, less_free: int = 0) -> Run:
    """Return a run of ranks that take so much for their weights; on the last one so much more is gone before."""
    shapes = [Shape(weights=size) for size in weights]
    shapes[-1].context += less_free
    return made(*shapes, run_id=f"{sum(weights)}")


def test_ranks_whose_values_are_not_the_same_but_whose_changes_are_make_one_block() -> None:
    count, common = 4, 20 * GIB
    pair = [ranks([common + more] * count, less_free=GIB) for more in (0, GIB)]
    text = diff_text(compare(pair))

    assert 1 == text.count("last reading: weights")
    assert "4 ranks alike: TP0-TP3; the values are TP3's" in " ".join(text.split())


def test_of_many_kinds_of_ranks_those_of_the_tightest_and_of_most_ranks_are_printed() -> None:
    count, common = 40, 20 * GIB
    weights = [common + (place << 27) for place in range(count)]
    found = compare((ranks([common] * count), ranks(weights)))
    text = diff_text(found)

    assert count - 1 == len(found.ranks)
    assert MOST_BLOCKS == text.count("last reading: weights")
    assert f"and {len(found.ranks) - MOST_BLOCKS} more ranks: --format json has them" in text
    assert f"\n  {found.sides[1].tightest}\n" in text


def test_a_flag_that_a_side_of_a_matrix_was_not_given_is_not_sold_as_given() -> None:
    names = ("car", "maxbs64", "fraction80", "fp8kv")
    text = " ".join(diff_text(compare([recorded(EXPERIMENTS / name) for name in names])).split())

    assert "--mem-fraction-static A, D: not given (0.909) B: not given (0.908) C: 0.8" in text
    assert "--kv-cache-dtype A, B, C: not given (auto) D: fp8_e5m2" in text


def test_a_value_that_no_column_holds_stands_on_lines_of_its_own() -> None:
    values = tuple(f"/somewhere/that/is/rather/long/{name}" for name in ("one", "two", "one"))
    row = Row(group="sglang", key="path", values=values)
    lines = [line.plain.strip() for line in made_lines([row], ["A", "B", "C"], 80)]

    assert ["SGLang's path", f"A, C: {values[0]}", f"B: {values[1]}"] == lines


def test_the_parts_of_a_structured_value_are_rows_of_the_matrix() -> None:
    values = tuple(f"Config(decode=Phase(max_bs={most}), backend='full')" for most in (8, 64, 8))
    row = Row(group="arguments effective", key="config", values=values)
    lines = [line.plain.split() for line in made_lines([row], ["A", "B", "C"], 80)]

    assert [["A", "B", "C"], ["config", "decode.max_bs", "8", "64", "8"]] == lines
