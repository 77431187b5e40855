"""A run that ran out of memory, planned again: it does so again unless the plan frees as much as was missing."""

from __future__ import annotations

import pytest

from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib
from tests.explain.plan.making import known, recorded

FAILURES, EXPERIMENTS = "h200-x2-sglang-0.5.14-failures", "h200-x2-sglang-0.5.14-experiments"
OOM, LATER = f"{FAILURES}/oom-capture", f"{EXPERIMENTS}/oom-capture-later"


def short(name: str) -> int:
    found = shortage_of(Subject(recorded(name)))
    assert found is not None
    assert found.short_bytes is not None
    return found.short_bytes


@pytest.mark.parametrize("name", [OOM, LATER, f"{EXPERIMENTS}/oom-capture-size"])
def test_a_run_that_ran_out_does_so_again_where_nothing_is_changed(name: str) -> None:
    made = plan(recorded(name))

    assert made.starts is False
    said = f"this run itself ran out of memory in graph.capture with these settings, by {mib(short(name))}"
    assert said in " ".join(made.says)


def test_memory_that_the_plans_sum_does_not_have_is_said_to_be_missing_there() -> None:
    car = recorded(f"{EXPERIMENTS}/car")
    made = plan(recorded(LATER), like=car)
    left = gib(known(made, "free_bytes"))

    assert made.starts is False
    assert f"The plan does not account for that: by its sum {left} GiB would stay free" in " ".join(made.says)
    assert "stay free after the start" not in " ".join(made.says)
    lower = plan(recorded(LATER), Inputs(mem_fraction_static=0.9), like=car)
    assert lower.starts is None
    assert f"where by the same sum {left} GiB would have stayed free" in " ".join(lower.says)


def test_a_shortage_that_the_plan_has_is_said_beside_it() -> None:
    said = " ".join(plan(recorded(OOM), like=recorded(f"{FAILURES}/car")).says)

    assert "does not account" not in said
    assert "GiB more are needed after the pools than is left" in said


def test_a_change_that_frees_less_than_was_missing_is_said_to_and_more_is_not_refused() -> None:
    own = known(plan(recorded(OOM)), "kv_pool_bytes")
    for fraction in (0.9964, 0.996, 0.9955, 0.98):
        made = plan(recorded(OOM), Inputs(mem_fraction_static=fraction))
        freed = own - known(made, "kv_pool_bytes")
        enough = freed >= short(OOM)

        assert made.starts is (None if enough else False)
        assert enough or f"What is planned frees {f'only {mib(freed)}' if freed else 'none of it'}" in " ".join(
            made.says
        )


@pytest.mark.parametrize("asked", [Inputs(chunked_prefill_size=2048), Inputs(mem_fraction_static=0.999)])
def test_a_change_that_frees_nothing_there_does_not_help(asked: Inputs) -> None:
    assert plan(recorded(OOM), asked).starts is False


def test_the_range_that_does_a_wish_ends_where_it_would_run_out_again() -> None:
    made = plan(recorded(OOM), None, Wishes(tokens=4_000_000))

    assert made.highest is not None
    step = 0.0001
    assert plan(recorded(OOM), Inputs(mem_fraction_static=made.highest.mem_fraction_static)).starts is None
    assert plan(recorded(OOM), Inputs(mem_fraction_static=made.highest.mem_fraction_static + step)).starts is False
