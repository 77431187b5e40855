"""What a reader of the page sees: failed phases by name, no empty rows, the right edge, and every chart, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sglang_probe.explain.engine import explain
from sglang_probe.report.html.data import page_data
from sglang_probe.report.series import IN_USE, NOT_TOLD, ON_THE_HOST
from sglang_probe.timeline import Timeline
from tests.report.html.conftest import Open
from tests.report.html.opened import DATA, RECORDED, document_of, timeline_of

FAILURES = DATA / "h200-x2-sglang-0.5.14-failures"
CASES = DATA / "cases"


def _on_the_host(timeline: Timeline) -> Timeline:
    (run,) = timeline.runs
    processes = [
        structs.replace(one, device=one.device and structs.replace(one.device, kind="cpu")) for one in run.processes
    ]
    return structs.replace(timeline, runs=(structs.replace(run, processes=tuple(processes)),))


def test_what_a_log_does_not_tell_apart_is_drawn_so_that_the_stack_does_not_fall() -> None:
    for rank in document_of(CASES / "healthy_tp8.log")["runs"][0]["ranks"]:
        memory = rank["memory"]
        sums = {sum(amount or 0 for amount in row) for row in zip(*memory["held"].values(), strict=True)}
        assert 1 == len(sums)
        assert {IN_USE: NOT_TOLD} == memory["called"]
        assert any(memory["held"][IN_USE])


def test_where_there_is_a_total_nothing_is_drawn_that_is_no_category() -> None:
    run = document_of(RECORDED)["runs"][0]

    assert IN_USE not in run["keys"]
    assert all({} == rank["memory"]["called"] for rank in run["ranks"])


def test_what_a_host_has_in_use_is_not_called_unexplained(open_page: Open) -> None:
    timeline = _on_the_host(timeline_of(RECORDED))
    opened = open_page(page_data(timeline, explain(timeline))).drawn()

    assert ["free", ON_THE_HOST, "total"] == [row[0] for row in opened.rows("At the last reading")]
    assert "unexplained" not in opened.text("#memory")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_failed_phase_is_named_where_its_bar_is_a_sliver(open_page: Open, width: int) -> None:
    opened = open_page(document_of(FAILURES / "oom-capture"), viewport={"width": width, "height": 900}).drawn()

    words = opened.js("[...document.querySelectorAll('#memory .annotation')].map(one => one.textContent)")
    assert any("graph.capture" in word and "failed" in word for word in words)


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_a_hover_has_no_empty_row_and_leaves_most_of_the_chart_in_view(open_page: Open, share: float) -> None:
    opened = open_page(document_of(FAILURES / "oom-capture"), viewport={"width": 390, "height": 900}).drawn()
    opened.page.locator("#memory .chart").scroll_into_view_if_needed()
    x, y, width, height = opened.js(
        """() => { const box = document.querySelector('#memory .chart .nsewdrag').getBoundingClientRect();
           return [box.x, box.y, box.width, box.height]; }"""
    )
    for part in (share + 0.03, share):
        opened.page.mouse.move(x + width * part, y + height * 0.4)
    opened.wait("document.querySelector('#memory .chart .hoverlayer .hovertext')")

    lines = opened.js(
        """() => { const box = document.querySelector('#memory .hovertext .nums');
           const lines = box.querySelectorAll('.line');
           return lines.length ? [...lines].map(one => one.textContent) : [box.textContent]; }"""
    )
    assert all(line.strip("■ ") for line in lines)
    covered = opened.js(
        """() => { const box = document.querySelector('#memory .hovertext path').getBoundingClientRect();
           return box.width * box.height; }"""
    )
    assert covered < width * height / 2


def test_failed_cells_are_marked_in_words_and_the_map_does_not_open_on_seconds(open_page: Open) -> None:
    opened = open_page(document_of(FAILURES / "oom-capture")).drawn()

    drawn = opened.js("document.querySelector('#heat .chart').data[0].text.flat().join(' ')")
    assert "failed" in drawn
    assert "interrupted" in drawn
    assert "Framed:" in opened.text("#heat")
    assert "cost" == opened.text("#heat button[aria-pressed=true]")
    assert "1 rank of 2 stands out by how it ended" in opened.text("#heat")


@pytest.mark.parametrize("path", [RECORDED, FAILURES / "oom-capture"], ids=lambda path: path.name)
def test_a_rank_within_what_is_alike_has_no_colour(open_page: Open, path: Path) -> None:
    opened = open_page(document_of(path)).drawn()

    heat = opened.js("DOC.runs[0].heat")
    for measure in ("cost", "free"):
        coloured = opened.js("measure => offMedian(DOC.runs[0], measure)", measure)
        for row, cells in zip(heat["rows"], coloured, strict=True):
            for cell, usual, alike, off in zip(
                row["cells"][measure], heat["median"][measure], heat["alike"][measure], cells, strict=True
            ):
                if cell is not None and usual is not None:
                    assert (off != 0) == (alike is not None and abs(cell - usual) > alike)


def _edge(document: dict[str, Any], open_page: Open) -> str:
    edge: str = open_page(document).js("getComputedStyle(document.querySelector('.look')).borderLeftColor")
    return edge


def test_a_start_that_leads_with_a_warning_has_no_green_edge(open_page: Open) -> None:
    leading = document_of(FAILURES / "leftover")
    assert ("ready", "warning") == (leading["runs"][0]["ended"], leading["runs"][0]["findings"][0]["severity"])

    assert _edge(leading, open_page) != _edge(document_of(RECORDED), open_page)


def test_of_a_record_that_ends_early_the_box_says_so_first(open_page: Open) -> None:
    opened = open_page(document_of(CASES / "token_cap_then_capture.log"))

    assert "the record ends here" in opened.text(".look h3")


def test_what_to_do_comes_straight_after_the_cause(open_page: Open) -> None:
    opened = open_page(document_of(FAILURES / "oom-capture"))

    parts = opened.js("[...document.querySelectorAll('.look .finding > *')].map(one => one.tagName)")
    assert ["H3", "P", "UL", "PRE"] == parts[:4]
    assert opened.text(".look .finding ul").startswith("do:")


def test_figures_of_torch_and_of_the_device_are_told_to_be_two(open_page: Open) -> None:
    assert "docs/ledger.md" in open_page(document_of(RECORDED)).text("#memory")


def test_every_chart_is_drawn_without_being_scrolled_to(open_page: Open) -> None:
    opened = open_page(document_of(FAILURES / "oom-capture"), viewport={"width": 390, "height": 300})

    opened.wait("plotly !== null && charts.length > 2 && charts.every((one) => one.isDrawn)")
    opened.page.locator("#rank").select_option("1")
    opened.wait("charts.every((one) => one.isDrawn)")
    assert 0 == opened.js("scrollY")
