"""The page in a real browser: it opens without a network, can be used with keys, and says what the JSON says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.many_ranks import write_ranks
from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.figures import GIB, gib
from sglang_probe.report.html.data import page_data
from sglang_probe.report.html.write import write
from sglang_probe.report.material import Material
from sglang_probe.timeline import Timeline, build, to_json
from tests.report.html.conftest import Open
from tests.report.html.opened import DATA, RECORDED, document_of, timeline_of

LIMIT_BYTES = 10_000_000
WIDTHS = (390, 1280, 1920)
RUNS = [
    RECORDED,
    DATA / "h200-x2-sglang-0.5.14" / "lowfrac",
    *(DATA / "h200-x2-sglang-0.5.14-failures" / name for name in ("leftover", "poisoned", "sigkill", "oom-weights")),
    DATA / "h200-x2-sglang-0.5.14-experiments" / "twoservers",
    DATA / "h200-x2-sglang-0.5.14" / "car.log",
    *(DATA / "cases" / f"{name}.log" for name in ("healthy_tp8", "weights_exceed_static_budget")),
]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_run_opens_at_every_width_without_a_word_on_the_console_or_a_request(open_page: Open, path: Path) -> None:
    opened = open_page(document_of(path), viewport={"width": WIDTHS[0], "height": 900}).drawn()

    for width in WIDTHS:
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.wait("charts.every((one) => Math.abs(one.place.clientWidth - one.width) <= 1)")
        assert opened.js("document.documentElement.scrollWidth") <= width
    assert opened.js("[...document.querySelectorAll('.chart')].every(one => one.querySelector('svg'))")
    assert opened.quiet()


@pytest.mark.parametrize("name", ["story", "killed", "ready"])
def test_a_run_without_ledger_says_why_there_is_no_chart(
    open_page: Open, name: str, request: pytest.FixtureRequest
) -> None:
    timeline: Timeline = request.getfixturevalue(name)

    opened = open_page(page_data(timeline, explain(timeline))).drawn()

    assert "No chart: nothing that was recorded says what its memory was spent on" in opened.text("#memory")
    assert opened.quiet()


def test_nothing_read_is_said_too(open_page: Open, story: Timeline) -> None:
    empty = Timeline(runs=(), read=story.read)

    opened = open_page(page_data(empty, explain(empty))).drawn()

    assert "holds no run" in opened.text("main")
    assert opened.quiet()


def _last_ledger(process: dict[str, Any]) -> dict[str, int | None]:
    step = next(one for one in reversed(process["steps"]) if one["depth"] == 0 and one["ledger"])
    ledger: dict[str, int | None] = step["ledger"]
    return ledger


def _ranks(path: Path) -> list[dict[str, Any]]:
    processes = to_json(timeline_of(path))["runs"][0]["processes"]
    return [one for one in processes if one["label"] is not None]


def test_the_figures_are_those_of_the_json(open_page: Open) -> None:
    rank = _ranks(RECORDED)[0]
    opened = open_page(document_of(RECORDED)).drawn()
    names = opened.js("DOC.categories")

    shown = {row[0]: row[1:] for row in opened.rows("At the last reading")}

    held = {names[key]: amount for key, amount in _last_ledger(rank).items() if amount}
    assert {name: int(cells[2].replace(",", "")) for name, cells in shown.items() if name != "total"} == held
    assert {name: cells[0] for name, cells in shown.items() if name != "total"} == {
        name: gib(amount) for name, amount in held.items()
    }
    top = opened.js(
        """key => [...document.querySelectorAll('#memory .chart')][0].data
           .filter(one => one.stackgroup).map(one => [one.meta, one.y.at(-1)])"""
    )
    assert {names[key]: round(share * GIB) for key, share in top} == held


def test_the_tables_behind_the_charts_are_those_of_the_json(open_page: Open) -> None:
    rank = _ranks(RECORDED)[0]
    opened = open_page(document_of(RECORDED)).drawn()

    opened.page.get_by_text("Every step as a table").click()
    opened.page.get_by_text("The budget as a table").click()

    costs = [row[-1].replace(",", "") for row in opened.rows("Every step")]
    assert costs == [str("-" if step["cost_bytes"] is None else step["cost_bytes"]) for step in rank["steps"]]
    budget = rank["workers"][0]["budget"]
    terms = {row[0]: int(row[-1].replace(",", "")) for row in opened.rows("The budget, term by term")}
    assert terms["pre-load memory"] == budget["pre_load_bytes"]
    assert terms["rest"] == budget["rest_bytes"]


def test_figures_round_as_they_do_in_the_terminal(open_page: Open) -> None:
    halves = [sign * (part * GIB // 2000 + more) for part in range(0, 4000, 7) for more in (0, 1) for sign in (1, -1)]
    amounts = [0, 64 << 20, 192 << 20, 320 << 20, -(64 << 20), 139_801 << 20, *halves]
    opened = open_page(document_of(RECORDED))

    for off in (None, 1 << 20, 6 << 20, 60 << 20):
        assert opened.js("([all, off]) => all.map(one => gib(one, off))", [amounts, off]) == [
            gib(amount, off) for amount in amounts
        ]


def test_a_rank_is_picked_with_the_keyboard(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED)).drawn()
    first = opened.text("#memory h2")

    opened.page.locator("#rank").focus()
    opened.page.keyboard.press("ArrowDown")

    assert ("Memory of TP0 over time", "Memory of TP1 over time") == (first, opened.text("#memory h2"))
    assert f"pid {_ranks(RECORDED)[1]['pid']}" in opened.text("#where")


def test_a_rank_is_picked_by_a_click_on_the_heat_map_and_by_the_table_behind_it(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED)).drawn()
    opened.page.locator("#heat .chart").scroll_into_view_if_needed()
    cell = opened.js(
        """() => { const box = document.querySelector('#heat .chart .heatmaplayer image, #heat .chart .heatmaplayer')
           .getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height * 0.75]; }"""
    )

    opened.page.mouse.move(*cell)
    opened.page.mouse.click(*cell)
    opened.wait("document.querySelector('#memory h2').textContent.includes('TP1')")
    opened.page.get_by_text("The same as a table").click()
    opened.page.get_by_role("button", name="TP0", exact=True).press("Enter")

    assert opened.text("#memory h2") == "Memory of TP0 over time"
    assert opened.quiet()


def test_hover_says_gib_and_bytes(open_page: Open) -> None:
    held = _last_ledger(_ranks(RECORDED)[0])["kv_pool"]
    opened = open_page(document_of(RECORDED)).drawn()
    opened.page.locator("#memory .chart").scroll_into_view_if_needed()
    box = opened.js(
        """() => { const box = document.querySelector('#memory .chart .nsewdrag').getBoundingClientRect();
           return [box.x, box.y, box.width, box.height]; }"""
    )

    layer = "document.querySelector('#memory .chart .hoverlayer').textContent"
    for share in (0.7, 0.8):
        opened.page.mouse.move(box[0] + box[2] * share, box[1] + box[3] * 0.4)
    opened.wait(layer)

    shown = opened.js(layer)
    assert f"KV pool {gib(held)} GiB, {held:,} B" in shown


def test_of_several_runs_one_is_picked(open_page: Open) -> None:
    timeline = build(read([str(RECORDED), str(DATA / "h200-x2-sglang-0.5.14" / "lowfrac")]))
    opened = open_page(page_data(timeline, explain(timeline))).drawn()
    names = [run.run_id for run in timeline.runs]
    assert names[0] == opened.text("h1")

    opened.page.locator("#run").focus()
    opened.page.keyboard.press("ArrowDown")

    assert names[1] == opened.text("h1")
    assert opened.drawn().quiet()


def test_unexplained_memory_below_zero_is_drawn_below_zero(open_page: Open) -> None:
    document = document_of(RECORDED)
    held = document["runs"][0]["ranks"][0]["memory"]["held"]
    held["unexplained"] = [-2 * GIB for _ in held["unexplained"]]

    opened = open_page(document).drawn()

    drawn = opened.js(
        """document.querySelector('#memory .chart').data.filter(one => one.meta === 'unexplained')
           .map(one => [one.stackgroup || null, Math.min(...one.y), Math.max(...one.y)])"""
    )
    assert [[None, -2, -2]] == drawn
    assert "-2.000" in [row[1] for row in opened.rows("At the last reading")]


def test_no_button_of_a_chart_sends_it_anywhere(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED)).drawn()

    titles = opened.js("[...document.querySelectorAll('.modebar-btn')].map(one => one.dataset.title)")

    assert {"Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"} == set(titles)
    assert {""} == set(opened.js("[...document.querySelectorAll('.chart')].map(one => one._context.plotlyServerURL)"))


def test_light_and_dark_follow_the_system_until_the_switch_is_used(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED), color_scheme="dark").drawn()
    background = "getComputedStyle(document.body).backgroundColor"
    chart = "document.querySelector('#memory .chart').layout.paper_bgcolor"
    dark = opened.js(background), opened.js(chart)

    opened.page.locator("#theme").press("Enter")

    assert dark != (opened.js(background), opened.js(chart))
    assert "Dark" == opened.text("#theme")
    opened.page.emulate_media(color_scheme="light")
    assert opened.quiet()


def test_it_prints_every_chart_narrow_enough_for_paper(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED))
    opened.wait("plotly !== null")
    opened.js("addEventListener('beforeprint', () => { window.paper = "
              "[...document.querySelectorAll('.chart')].map(one => one.layout.width); })")

    printed = opened.page.pdf(format="A4")

    assert printed.startswith(b"%PDF")
    widths = opened.js("window.paper")
    assert widths and len(widths) == opened.js("document.querySelectorAll('.chart').length")
    assert max(widths) <= 680
    assert opened.quiet()


def test_without_a_script_the_report_stands_there_as_text(open_page: Open, tmp_path: Path) -> None:
    timeline = timeline_of(RECORDED)
    write(Material(timeline, explain(timeline), read([str(RECORDED)])), tmp_path / "report.html")

    opened = open_page(tmp_path / "report.html", java_script_enabled=False)

    assert "READY after" in opened.text("noscript pre")
    assert "KV pool" in opened.text("noscript pre")


def test_512_ranks_stay_small_and_show_which_are_odd(open_page: Open, tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", 512, odd=(37, 200))
    collected = read([str(tmp_path / "run")])
    timeline = build(collected)
    write(Material(timeline, explain(timeline), collected), tmp_path / "report.html")

    opened = open_page(tmp_path / "report.html").drawn()

    assert (tmp_path / "report.html").stat().st_size < LIMIT_BYTES
    assert "2 ranks of 512 stand out by memory: TP37TP200" in opened.text("#heat").replace("\n", "")
    opened.page.locator("#rank").select_option("511")
    assert opened.text("#memory h2") == "Memory of TP511 over time"
    assert opened.quiet()


def test_each_chart_has_a_name_and_a_table_and_each_control_a_label(open_page: Open) -> None:
    opened = open_page(document_of(RECORDED)).drawn()

    assert opened.js("[...document.querySelectorAll('.chart')].every(one => one.getAttribute('aria-label'))")
    assert opened.js(
        "[...document.querySelectorAll('section')].filter(one => one.querySelector('.chart'))"
        ".every(one => one.querySelector('details, table'))"
    )
    assert opened.js(
        "[...document.querySelectorAll('button, select')].filter(one => !one.closest('.js-plotly-plot'))"
        ".every(one => one.textContent.trim() && (one.tagName === 'BUTTON' || one.labels.length))"
    )


def test_the_document_in_the_page_is_the_one_that_was_made(open_page: Open) -> None:
    document = document_of(RECORDED)

    assert json.loads(json.dumps(document)) == open_page(document).js("DOC")
