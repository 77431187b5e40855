"""A fact in which a rank differs is named with the rank; only what is measured, derived or an identity is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from sglang_probe.report.facts import LEFT_OUT
from sglang_probe.report.fold import folds_of
from sglang_probe.report.overview import spent
from sglang_probe.report.text import MOST_BLOCKS, timeline_text
from sglang_probe.timeline.model import Degradation, Neighbour, Process, Run, Target
from sglang_probe.timeline.processes import ranks_of
from tests.report.sizes import sized
from tests.report.test_fold import GIB, JITTER, folded, labels, rank, told
from tests.timeline.building import build_run

ODD = 5


def run_with(change: Callable[[Process], Process], odd: int = ODD) -> Run:
    """A recorded run of eight ranks, one of which is changed."""
    run = sized(8, ()).runs[0]
    place = next(at for at, process in enumerate(run.processes) if process.label == f"TP{odd}")
    changed = [change(one) if at == place else one for at, one in enumerate(run.processes)]
    return structs.replace(run, processes=tuple(changed))


def notes(run: Run) -> str:
    """What stands below the table of all ranks, in one line."""
    return " ".join(told(run).partition("The ranks at the end")[2].partition("\n== ")[0].split())


def another(value: Any) -> Any:
    """A value unlike a recorded one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value * 2 + 1
    return f"{value} strange" if isinstance(value, str) else [*value, 99] if isinstance(value, list) else {"strange": 1}


def attributes() -> list[tuple[int, str]]:
    steps = ranks_of(sized(8, ()).runs[0])[0].steps
    return [(at, name) for at, step in enumerate(steps) for name in step.attributes]


@pytest.mark.parametrize(("at", "name"), attributes())
def test_an_attribute_that_differs_is_named_with_its_rank_unless_there_is_a_reason(at: int, name: str) -> None:
    def change(process: Process) -> Process:
        step = process.steps[at]
        strange = structs.replace(step, attributes={**step.attributes, name: another(step.attributes[name])})
        return structs.replace(process, steps=(*process.steps[:at], strange, *process.steps[at + 1 :]))

    run = run_with(change)

    assert (len(folds_of(run, ranks_of(run))) == 1) == (name in LEFT_OUT)
    if name not in LEFT_OUT and name != "mem_fraction_static":
        assert re.search(rf"TP{ODD}, against .*(: {name} |KV tokens)", notes(run))


def of_pool(**fields: Any) -> Callable[[Process], Process]:
    def change(process: Process) -> Process:
        worker = process.workers[0]
        assert worker.kv is not None
        pools = (*worker.kv.pools[:-1], structs.replace(worker.kv.pools[-1], **fields))
        kv = structs.replace(worker.kv, pools=pools)
        return structs.replace(process, workers=(structs.replace(worker, kv=kv),))

    return change


def of_process(**fields: Any) -> Callable[[Process], Process]:
    return lambda process: structs.replace(process, **fields)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_pool(dtype="float8_e4m3fn"), "pool MHA of target: dtype float8_e4m3fn, not bfloat16"),
        (of_pool(layers=3), "pool MHA of target: layers 3, not 16"),
        (of_process(lost_events=1_000_000), "1,000,000 of its events are lost, not 0"),
        (of_process(alive=False), "its process is gone"),
        (of_process(torn_tail=True), "the last line of its file is cut off"),
        (
            of_process(degraded=(Degradation(source="nvml", reason="error", detail="lost", count=38),)),
            "nvml could not be read: error (lost, 38 times)",
        ),
        (
            of_process(targets=(Target(target="a:b", state="failed", reason="boom"),)),
            "its hook of a:b failed: boom",
        ),
    ],
)
def test_a_fact_of_one_rank_is_said_below_the_table(change: Callable[[Process], Process], says: str) -> None:
    assert re.search(rf"TP{ODD}, against the median of 7 ranks: .*{re.escape(says)}", notes(run_with(change)))


def test_ranks_on_one_card_are_named() -> None:
    first = ranks_of(sized(8, ()).runs[0])[0]

    said = notes(run_with(of_process(device=first.device)))

    assert "TP0, TP5, against the median of 6 ranks: both on one card" in said


def test_tokens_that_are_off_by_little_are_said_with_the_rank_that_has_least() -> None:
    def change(process: Process) -> Process:
        kv = process.workers[0].kv
        assert kv is not None
        fewer = structs.replace(kv, tokens=(kv.tokens or 0) - 500)
        return structs.replace(process, workers=(structs.replace(process.workers[0], kv=fewer),))

    assert re.search(r"TP0-TP7: [\d,]+ to [\d,]+ KV tokens \(least TP5\)", notes(run_with(change)))


def test_a_million_lost_events_and_one_are_not_the_same() -> None:
    ranks = [rank(place, 8, lost_events={3: 1, 4: 1_000_000}.get(place, 0)) for place in range(8)]

    assert labels(folded(*ranks))[1:] == [["TP3"], ["TP4"]]


def test_a_group_is_near_its_own_median_and_not_that_of_those_it_was_taken_from() -> None:
    near = JITTER * 2 * 0.94  # of the tolerance
    offs = [*[0.0] * 6, near, 2 * near, *[8.0] * 5]
    ranks = [rank(place, len(offs), less=off) for place, off in enumerate(offs)]

    assert labels(folded(*ranks))[:2] == [[f"TP{place}" for place in range(7)], ["TP7"]]


def test_a_row_s_figures_are_one_rank_s_and_it_is_said_whose() -> None:
    ranks = tuple(rank(place, 3, less=JITTER * place) for place in range(3))
    run = build_run(ranks, "ready")
    (fold,) = folds_of(run, ranks)

    assert f"the figures are those of {fold.shown.label}; +- is" in notes(run)
    free = spent(fold.shown).free
    assert free is not None
    assert f" {free / GIB:.3f} +-" in notes(run)


@pytest.mark.parametrize("stranger", [0, 1])
def test_a_rank_with_a_stranger_on_its_card_is_never_the_norm(stranger: int) -> None:
    told_of = (Neighbour(pid=4711, kind="foreign", peak_bytes=30 * GIB),)
    ranks = tuple(
        rank(place, 2, less=30.0 if place == stranger else 0.0, neighbours=told_of if place == stranger else ())
        for place in range(2)
    )

    said = notes(build_run(ranks, "ready"))

    assert f"TP{stranger}, against TP{1 - stranger}: 30.000 GiB of its card are another process's (pid 4711)" in said


def test_of_many_groups_the_least_free_and_the_farthest_are_shown_and_the_worst_of_the_others_has_the_row() -> None:
    count = 3 * MOST_BLOCKS
    ranks = tuple(rank(place, count, less=place / 2 if place else 0.0) for place in range(count - 1))
    ranks += (rank(count - 1, count),)  # with TP0 the largest group
    text = told(build_run(ranks, "ready"))

    blocks = [block.partition("\n")[0] for block in text.split("\n== ")[1:]]
    assert blocks[0] == f"2 ranks that agree: TP0, TP{count - 1}"
    shown = range(count - MOST_BLOCKS, count - 1)
    assert [re.match(r"TP\d+", block)[0] for block in blocks[1:]] == [f"TP{place}" for place in shown]  # type: ignore[index]
    assert f"are those of TP0, TP{shown[0] - 1};" in " ".join(text.split())


def test_ranks_of_one_label_are_each_printed_where_it_is_asked_for_without_the_host() -> None:
    run = run_with(of_process(label="node:TP0"))
    timeline = msgspec.structs.replace(sized(8, ()), runs=(run,))

    text = timeline_text(timeline, only=["TP0"])

    assert [block.partition(": ")[0] for block in text.split("\n== ")[1:]] == ["TP0", "node:TP0"]
