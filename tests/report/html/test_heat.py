"""Which ranks stand out, and what the map says of a cell: by memory and by how they ended, never by seconds alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from bench.many_ranks import write_ranks
from sglang_probe.collect.read import read
from sglang_probe.figures import GIB
from sglang_probe.report.apart import SLOW
from sglang_probe.report.html.heat import heat_data
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import ranks_of
from tests.report.html.opened import DATA, RECORDED, timeline_of
from tests.timeline.building import build_rank, build_run, build_step

FAILURES = DATA / "h200-x2-sglang-0.5.14-failures"


def _run(directory: Path, ranks: int) -> Run:
    write_ranks(directory / "run", ranks)
    (run,) = build(read([str(directory / "run")])).runs
    return run


def _with(run: Run, place: int, process: Process) -> Run:
    old = ranks_of(run)[place]
    return structs.replace(run, processes=tuple(process if one is old else one for one in run.processes))


def test_a_rank_that_is_slow_and_nothing_else_does_not_stand_out(tmp_path: Path) -> None:
    run = _run(tmp_path, 8)
    own = ranks_of(run)[3]
    slow = [structs.replace(step, duration_s=(step.duration_s or 0) * 3 * SLOW + 10) for step in own.steps]

    heat = heat_data(_with(run, 3, structs.replace(own, steps=tuple(slow))))

    assert ([], [3], 1) == (heat["outliers"], heat["slow"], heat["odd"]["seconds"])
    assert not any(row["stands_out"] for row in heat["rows"])


def test_the_median_of_two_ranks_lies_between_them_and_neither_stands_out() -> None:
    costs = (2 * GIB, 12 * GIB)
    ranks = [build_rank(place, 2, (build_step("weights.load", 0, 9.0, 7.0, 1.0, self_delta_bytes=-cost),))
             for place, cost in enumerate(costs)]  # fmt: skip

    heat = heat_data(build_run(tuple(ranks), "ready"))

    assert [sum(costs) // 2] == heat["median"]["cost"]
    assert ([], 2) == (heat["outliers"], heat["odd"]["cost"])


def test_what_is_free_on_a_host_sets_no_rank_apart(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", 8, odd=(2,))
    (run,) = build(read([str(tmp_path / "run")])).runs
    on_cards = heat_data(run)
    hosts = [structs.replace(one, device=one.device and structs.replace(one.device, kind="cpu"))
             for one in run.processes]  # fmt: skip

    on_hosts = heat_data(structs.replace(run, processes=tuple(hosts)))

    assert ([2], []) == (on_cards["outliers"], on_hosts["outliers"])
    assert {None} == {*on_hosts["alike"]["free"], *on_hosts["alike"]["cost"]}


@pytest.mark.parametrize("name", ["oom-capture", "sigkill"])
def test_of_two_ranks_that_ended_unlike_the_one_that_failed_first_stands_out(name: str) -> None:
    (run,) = timeline_of(FAILURES / name).runs

    heat = heat_data(run)

    ranks = ranks_of(run)
    assert [run.failed_label] == [ranks[place].label for place in heat["ended"]]
    assert heat["ended"] == heat["outliers"]


def test_of_many_ranks_the_one_that_did_not_end_as_most_did_stands_out(tmp_path: Path) -> None:
    run = _run(tmp_path, 8)
    own = ranks_of(run)[5]
    died = structs.replace(own, steps=(*own.steps[:-1], structs.replace(own.steps[-1], state="died")))

    heat = heat_data(_with(run, 5, died))

    assert [5] == heat["ended"]
    assert "died" in heat["rows"][5]["states"]


def test_a_cell_says_how_its_step_ended_unless_it_ended_well() -> None:
    (run,) = timeline_of(FAILURES / "oom-capture").runs

    heat = heat_data(run)

    for process, row in zip(ranks_of(run), heat["rows"], strict=True):
        for phase, state in zip(heat["phases"], row["states"], strict=True):
            states = {step.state for step in process.steps if step.phase == phase} - {"ok"}
            assert (state in states) if states else state is None


def test_a_missing_figure_has_a_reason() -> None:
    (run,) = timeline_of(RECORDED).runs

    heat = heat_data(run)

    (why,) = heat["why"]["cost"]
    cells = zip(heat["phases"], heat["rows"][0]["cells"]["cost"], strict=True)
    missing = [phase for phase, cell in cells if cell is None]
    assert missing
    assert why.startswith(", ".join(missing))
    assert "no CUDA context" in why
