"""All texts for a person, of one, eight and 512 ranks: golden files, as on a page and plain, for a screen reader."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.engine import explain
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.make import plan
from sglang_probe.report.bars import legend
from sglang_probe.report.diff import diff_text
from sglang_probe.report.explain import explain_text
from sglang_probe.report.layout import WIDTH, Width
from sglang_probe.report.plan import plan_text
from sglang_probe.report.text import timeline_text
from tests.report.sizes import ODD, SIZES, sized

ANSI = re.compile("\x1b\\[[0-9;]*m")
NARROW = (40, 50, 60, 70, 79)
READABLE = 250
"""Lines that a person reads: about what a run of one rank and one that differs takes, whatever the number of ranks."""


def _timeline(size: int, width: Width, colour: bool = False) -> str:
    return timeline_text(sized(size, ODD[size]), width=width, colour=colour)


def _bars(size: int, width: Width, colour: bool = False) -> str:
    return timeline_text(sized(size, ODD[size]), width=width, colour=colour, bars=True)


def _explain(size: int, width: Width, colour: bool = False) -> str:
    timeline = sized(size, ODD[size])
    return explain_text(explain(timeline), timeline, width, colour=colour)


def _diff(size: int, width: Width, colour: bool = False) -> str:
    (before,), (after,) = (sized(size, odd).runs for odd in ((), ODD[size] or (0,)))
    return diff_text(compare((before, after)), width, colour=colour)


def _plan(size: int, width: Width, colour: bool = False) -> str:
    (run,) = sized(size, ODD[size]).runs
    return plan_text(plan(run, Inputs(mem_fraction_static=0.85)), width, colour=colour)


Text = Callable[[int, Width, bool], str]
TEXTS = {"timeline": _timeline, "bars": _bars, "explain": _explain, "diff": _diff, "plan": _plan}
each_text = pytest.mark.parametrize("render", [pytest.param(text, id=name) for name, text in TEXTS.items()])
each_size = pytest.mark.parametrize("size", SIZES)
GOLDENS = [
    pytest.param(text, size, width, id=f"{name}-{size}{'-plain' if width is None else ''}")
    for name, text in TEXTS.items()
    for size in SIZES
    for width in (WIDTH, None)
    if width is not None or name != "bars"  # a plain text has none
]


@pytest.mark.parametrize(("render", "size", "width"), GOLDENS)
def test_a_text_of_any_number_of_ranks_is_the_golden_one(
    render: Text, size: int, width: Width, golden: Callable[[str], str]
) -> None:
    text = render(size, width, False)

    assert golden(text) == text


@each_text
@each_size
def test_a_text_fits_the_page_and_is_read_whatever_the_number_of_ranks(render: Text, size: int) -> None:
    lines = render(size, WIDTH, False).splitlines()

    assert [line for line in lines if len(line) > WIDTH] == []
    assert len(lines) < READABLE


@each_text
@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("size", [1, 8])
def test_a_narrow_page_has_no_line_that_could_be_broken_and_is_too_long(render: Text, size: int, width: int) -> None:
    lines = render(size, width, False).splitlines()

    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize("width", NARROW)
def test_a_narrow_page_has_every_figure_of_the_page(width: int) -> None:
    page, narrow = (re.findall(r"\d+\.\d{3}\b", _timeline(8, one)) for one in (WIDTH, width))

    assert page
    assert set(page) == set(narrow)


@each_text
@each_size
def test_colour_adds_escapes_and_changes_no_character(render: Text, size: int) -> None:
    plain, coloured = (render(size, WIDTH, colour) for colour in (False, True))

    assert "\x1b" not in plain
    assert coloured != plain
    assert ANSI.sub("", coloured) == plain


@each_text
@each_size
def test_a_plain_text_has_no_columns_no_bars_and_no_indentation(render: Text, size: int) -> None:
    text = render(size, None, False)

    assert "  " not in text
    assert not [line for line in text.splitlines() if line.startswith((" ", "[", "=="))]


@each_size
def test_a_plain_text_has_every_figure_of_the_page(size: int) -> None:
    page, plain = (re.findall(r"\d+\.\d{3}\b", _timeline(size, width)) for width in (WIDTH, None))

    assert page
    assert set(page) == set(plain)


@each_size
def test_a_bar_carries_nothing_that_the_text_without_it_lacks(size: int) -> None:
    drawn, bare = _bars(size, WIDTH).splitlines(), _timeline(size, WIDTH).splitlines()
    titled = [line.removesuffix(f"; {legend(foreign=False)}") for line in drawn]

    assert bare == [line for line in titled if not line.startswith("  [") and line != f"  {legend(foreign=False)}"]
    assert len(bare) < len(drawn)
