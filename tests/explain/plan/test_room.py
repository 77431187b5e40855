"""What would make room: only what makes room for what is missing."""

from __future__ import annotations

import pytest

from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import NO_LEVER, plan
from sglang_probe.explain.plan.model import Plan
from tests.explain.plan.making import CAR, GIB, recorded, recordings

FAILURES = "h200-x2-sglang-0.5.14-failures"
FAILED_CAR = f"{FAILURES}/car"


def flags(made: Plan) -> list[str]:
    return [one.flag or one.says.partition(":")[0] for one in made.levers]


def test_for_memory_that_is_missing_after_the_pools_only_what_leaves_more_there_is_listed() -> None:
    made = plan(recorded(f"{FAILURES}/oom-capture"), like=recorded(FAILED_CAR))

    assert ["--mem-fraction-static", "--cuda-graph-max-bs"] == flags(made)
    assert all((lever.gain_bytes or 0) > 0 for lever in made.levers if lever.flag != "--mem-fraction-static")


def test_graphs_that_were_not_measured_may_make_room_by_an_unknown_amount() -> None:
    made = plan(recorded(f"{FAILURES}/oom-capture"))
    (graphs,) = [lever for lever in made.levers if lever.flag == "--cuda-graph-max-bs"]

    assert (None, None) == (graphs.gain_bytes, graphs.enough)
    assert "what it frees was not measured" in graphs.says


def test_ranks_that_are_too_unlike_are_only_mended_by_what_makes_them_alike() -> None:
    made = plan(recorded(f"{FAILURES}/tenant"), like=recorded(FAILED_CAR))

    assert ["the other processes gone from the cards"] == flags(made)


def test_no_change_is_listed_with_which_what_would_start_would_not() -> None:
    made = plan(recorded(CAR), None, Wishes(tokens=5_000_000))

    assert made.starts
    assert made.levers
    assert not any("short by" in lever.says or "-0." in lever.says for lever in made.levers)


def test_where_nothing_helps_the_answer_says_so() -> None:
    asked = Inputs(mem_fraction_static=0.9, custom_all_reduce=False)
    made = plan(recorded(CAR), asked, Wishes(free_bytes=139 * GIB))

    assert () == made.levers
    assert NO_LEVER in made.says
    assert NO_LEVER not in plan(recorded(CAR), None, Wishes(tokens=5_000_000)).says


@pytest.mark.parametrize("free", [130 * GIB, 134 * GIB])
def test_for_memory_that_is_to_stay_free_smaller_tokens_are_no_room(free: int) -> None:
    made = plan(recorded(CAR), Inputs(mem_fraction_static=0.9), Wishes(free_bytes=free))

    assert "--kv-cache-dtype" not in flags(made)


@pytest.mark.parametrize("tokens", [1_000, 4_000_000, 9_000_000])
@pytest.mark.parametrize("free", [None, 20 * GIB, 200 * GIB])
@pytest.mark.parametrize("name", recordings())
def test_no_change_gains_less_than_nothing(name: str, tokens: int, free: int | None) -> None:
    asked = Inputs(token_bytes=1 << 15, tp=4, cuda_graph_max_bs=512)
    for inputs in (asked, asked._replace(tp=None), asked._replace(mem_fraction_static=0.996)):
        for lever in plan(recorded(name), inputs, Wishes(tokens=tokens, free_bytes=free)).levers:
            assert lever.flag == "--mem-fraction-static" or (lever.gain_bytes or 0) >= 0, lever
