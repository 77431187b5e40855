"""The page of a comparison: it starts on a rank that both have, says what to do, and draws both on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.engine import explain
from sglang_probe.report.html.comparison import comparison_data
from tests.report.html.conftest import Open
from tests.report.html.opened import DATA, timeline_of

FAILURES = DATA / "h200-x2-sglang-0.5.14-failures"
EIGHT, ONE = (DATA / "cases" / f"{name}.log" for name in ("healthy_tp8", "weights_exceed_static_budget"))


def _compared(*paths: Path) -> dict[str, Any]:
    timelines = [timeline_of(path) for path in paths]
    return comparison_data(compare([one.runs[0] for one in timelines]), timelines, [explain(one) for one in timelines])


def test_it_starts_on_a_rank_that_both_sides_have_and_says_which_side_lacks_another(open_page: Open) -> None:
    document = _compared(EIGHT, ONE)
    opened = open_page(document).drawn()

    (common,) = [rank["label"] for rank in document["diff"]["ranks"] if not rank["lacks"]]
    assert f"Memory of {common} over time" == opened.text("#memory h2")
    assert 2 == opened.js("document.querySelectorAll('#memory .chart').length")
    opened.page.locator("#rank").select_option("1")
    assert "candidate has no rank TP1." in opened.text("#memory")
    assert 1 == opened.js("document.querySelectorAll('#memory .sides > div').length")
    assert opened.quiet()


def test_ranks_of_the_candidate_alone_can_be_picked_too(open_page: Open) -> None:
    opened = open_page(_compared(ONE, EIGHT)).drawn()

    opened.page.locator("#rank").select_option("7")

    assert "Memory of TP7 over time" == opened.text("#memory h2")
    assert "baseline has no rank TP7." in opened.text("#memory")


def test_the_box_at_the_top_says_what_to_do_about_the_candidate(open_page: Open) -> None:
    document = _compared(EIGHT, ONE)

    (do,) = [lever for lever in document["runs"][1]["findings"][0]["levers"] if lever.startswith("do:")]
    assert do in open_page(document).text(".look")


def test_budgets_side_by_side_are_on_one_scale_and_no_figure_meets_a_name_or_the_zero(open_page: Open) -> None:
    opened = open_page(_compared(FAILURES / "car", FAILURES / "leftover"), viewport={"width": 1280, "height": 900})
    opened.drawn()

    ranges = opened.js("[...document.querySelectorAll('#budget .chart')].map(one => one.layout.xaxis.range)")
    assert 2 == len(ranges)
    assert ranges[0][0] == ranges[1][0]
    meeting = opened.js(
        """() => [...document.querySelectorAll('#budget .chart, #arithmetic .chart')].flatMap(chart => {
          const box = one => one.getBoundingClientRect();
          const figures = [...chart.querySelectorAll('.textpoint text')];
          const others = [...chart.querySelectorAll('.ytick text, .zerolinelayer path')].map(box);
          if (!figures.length) return ['no figures'];
          return figures.filter(figure => others.some(other => { const one = box(figure);
            return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
          })).map(one => one.textContent); })"""
    )
    assert [] == meeting


def test_time_axes_are_one_or_the_page_says_that_they_are_not(open_page: Open) -> None:
    said = "the time axes are not"
    axes = "[...document.querySelectorAll('#memory .chart')].map(one => one.layout.xaxis.range.join())"
    alike, unlike = (
        open_page(_compared(FAILURES / "car", other)).drawn() for other in (FAILURES / "car", FAILURES / "leftover")
    )

    assert (1, False) == (len(set(alike.js(axes))), said in alike.text("#memory"))
    assert (2, True) == (len(set(unlike.js(axes))), said in unlike.text("#memory"))


def test_no_row_headed_in_gib_has_another_unit_without_saying_so() -> None:
    document = _compared(FAILURES / "car", FAILURES / "leftover")

    names = [row[0] for kind in document["diff"]["kinds"] for row in kind["rows"] if "token" in row[0]]
    assert names
    assert all(name.endswith(("in tokens", "in bytes")) for name in names)
