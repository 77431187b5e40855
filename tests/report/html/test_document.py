"""What the page shows, as data: the bytes of the JSON, sums that add up, ranks that are folded and none lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.many_ranks import write_ranks
from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.figures import GIB
from sglang_probe.report.html.data import page_data
from sglang_probe.report.html.heat import MOST_ROWS, heat_data
from sglang_probe.report.html.page import page_html
from sglang_probe.report.html.waterfall import bars_of
from sglang_probe.report.html.write import write
from sglang_probe.report.material import Material
from sglang_probe.timeline import Timeline, build, to_json
from sglang_probe.timeline.model import Budget, Kv, Worker
from tests.report.html.opened import DATA, RECORDED, document_of, timeline_of
from tests.timeline.building import build_rank, build_run, build_step

RECORDINGS = sorted(path.parent for path in DATA.glob("h200*/*/*.jsonl"))


@pytest.mark.parametrize("path", sorted(set(RECORDINGS)), ids=lambda path: path.name)
def test_the_bytes_of_every_reading_are_those_of_the_json(path: Path) -> None:
    timeline = timeline_of(path)
    shown = page_data(timeline, explain(timeline))

    for run, drawn in zip(to_json(timeline)["runs"], shown["runs"], strict=True):
        ranks = [process for process in run["processes"] if process["label"] is not None]
        for rank, own in zip(ranks, drawn["ranks"], strict=True):
            steps = own["memory"]["steps"]
            assert steps["cost"] == [step["cost_bytes"] for step in rank["steps"]]
            assert steps["free"] == [step["free_bytes"] for step in rank["steps"]]
            ledgers = [step["ledger"] for step in rank["steps"] if step["ledger"] is not None]
            for key, column in own["memory"]["held"].items():
                assert sorted(column, key=str) == sorted((ledger[key] for ledger in ledgers), key=str)
            totals = [step["ledger_total_bytes"] for step in rank["steps"] if step["ledger"] is not None]
            assert sorted(own["memory"]["total"], key=str) == sorted(totals, key=str)


def test_the_same_material_gives_the_same_page(tmp_path: Path) -> None:
    collected = read([str(RECORDED)])
    timeline = build(collected)
    for name in "ab":
        write(Material(timeline, explain(timeline), collected), tmp_path / name)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


BYTES = st.integers(0, 200 * GIB)


@given(
    pre_load=BYTES, available=BYTES, slack=BYTES, deductions=st.lists(BYTES, max_size=3), weights=BYTES,
    off=st.integers(-4096, 4096), cache=BYTES,
)  # fmt: skip
def test_the_bars_of_a_budget_add_up_to_the_byte(
    pre_load: int, available: int, slack: int, deductions: list[int], weights: int, off: int, cache: int
) -> None:
    budget = Budget(
        pre_load_bytes=pre_load,
        available_bytes=available,
        slack_bytes=slack,
        deductions={f"d{place}": taken for place, taken in enumerate(deductions)},
        rest_bytes=available - slack - sum(deductions) + off,
    )
    worker = Worker(worker="target", weights_bytes=weights, budget=budget, kv=Kv(bytes=cache))
    process = build_rank(0, 1, (), workers=(worker,))

    total = 0
    for bar in bars_of(process, worker):
        total = total + bar.bytes if bar.measure == "relative" else total if bar.measure == "total" else bar.bytes
        if bar.measure == "total":
            assert total == bar.bytes
    assert any(bar.name == "rest" and bar.bytes == budget.rest_bytes for bar in bars_of(process, worker))


@pytest.mark.parametrize("term", ["pre_load_bytes", "available_bytes", "slack_bytes"])
def test_a_budget_with_an_unknown_term_is_not_drawn_and_says_which(term: str) -> None:
    known = Budget(pre_load_bytes=3, available_bytes=2, slack_bytes=1)
    worker = Worker(worker="target", budget=msgspec.structs.replace(known, **{term: None}))
    run = build_run((build_rank(0, 1, (), workers=(worker,)),), "failed")
    timeline = Timeline(runs=(run,), read=timeline_of(RECORDED).read)

    (drawn,) = page_data(timeline, explain(timeline))["runs"][0]["ranks"][0]["workers"]

    assert [] == drawn["bars"]
    assert {"pre_load_bytes": "pre-load", "available_bytes": "available", "slack_bytes": "slack"}[term] in drawn["why"]


@pytest.mark.parametrize("count", [1, 2, MOST_ROWS, MOST_ROWS + 1, 130])
def test_each_rank_is_in_one_row_and_odd_ones_have_their_own(tmp_path: Path, count: int) -> None:
    odd = [count - 1] if count > 2 else []
    write_ranks(tmp_path / "run", count, odd=odd)
    (run,) = build(read([str(tmp_path / "run")])).runs

    heat = heat_data(run)

    places = [place for row in heat["rows"] for place in row["ranks"]]
    assert list(range(count)) == sorted(places)
    assert odd == heat["outliers"]
    assert all([place] in [list(row["ranks"]) for row in heat["rows"] if row["stands_out"]] for place in odd)
    assert (len(heat["rows"]) == count) == (count <= MOST_ROWS)


def test_a_cost_of_the_heat_map_is_counted_once_however_deep_its_step_is() -> None:
    outer = build_step("dist.init", 0, 10.0, 7.0, 5.0, self_delta_bytes=-1 * GIB)
    inner = build_step("dist.communicator tp", 1, 9.0, 7.0, 2.0, self_delta_bytes=-2 * GIB, parent=outer.id)
    heat = heat_data(build_run((build_rank(0, 1, (outer, inner)),), "ready"))

    assert ["dist.init", "dist.communicator"] == heat["phases"]
    assert [1 * GIB, 2 * GIB] == heat["rows"][0]["cells"]["cost"]
    assert [5.0, 2.0] == heat["rows"][0]["cells"]["seconds"]


def test_a_log_says_what_its_figures_are_good_for_and_that_it_names_no_total() -> None:
    memory = document_of(DATA / "cases" / "healthy_tp8.log")["runs"][0]["ranks"][0]["memory"]

    assert any("no total of the card: there is no ceiling" in note for note in memory["notes"])
    assert any("good to 0.01" in note for note in memory["notes"])
    assert set(memory["total"]) == {None}


def test_a_page_of_a_run_that_wrote_no_rank_says_so(story: Timeline) -> None:
    run = build_run((), "failed")
    timeline = Timeline(runs=(run,), read=story.read)

    document = page_data(timeline, explain(timeline))

    assert [] == document["runs"][0]["ranks"]
    assert "FAILED" in page_html(document, "FAILED", "FAILED")
