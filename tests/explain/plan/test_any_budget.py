"""Any budget, any settings: the numbers re-add, more fraction is never less, and both ways of planning agree."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.forward import outlook
from sglang_probe.explain.plan.frame import frame_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import CannotPlan, Plan
from sglang_probe.explain.plan.names import NAMES
from sglang_probe.explain.plan.wishes import GRID
from sglang_probe.report.plan import plan_text
from sglang_probe.timeline.model import Run
from tests.explain.plan.making import GIB, inputs, known, made_run, recorded, recordings, runs, value

BEFORE = ("weights_bytes", "draft_weights_bytes", "else_before_bytes")
AFTER = ("kv_pool_bytes", "request_pool_bytes", "attention_bytes", "graphs_bytes", "else_after_bytes")
many = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def deducted(made: Plan) -> int:
    return sum(known(made, one.name) for one in made.numbers if one.name.startswith("deductions."))


@many
@given(runs(), inputs())
def test_the_numbers_re_add_to_the_byte(run: Run, asked: Inputs) -> None:
    made = plan(run, asked)

    assert known(made, "available_bytes") == known(made, "pre_load_bytes") - sum(known(made, name) for name in BEFORE)
    slack, rest = known(made, "slack_bytes"), known(made, "rest_bytes")
    assert rest == known(made, "available_bytes") - slack - deducted(made)
    if value(made, "free_bytes") is not None:
        taken = sum(known(made, name) for name in AFTER)
        assert known(made, "free_bytes") == known(made, "available_bytes") - taken
        assert known(made, "tokens") * known(made, "bytes_per_token") <= rest


@many
@given(runs(), inputs())
def test_what_is_printed_re_adds_to_its_last_decimal(run: Run, asked: Inputs) -> None:
    text = plan_text(plan(run, asked))
    planned = {
        name: float(found[1].replace(",", ""))
        for name, shown in NAMES.items()
        if (found := re.search(rf"^{re.escape(shown)} .* (-?[\d,.]+)  \w", text, re.MULTILINE))
    }
    names = re.findall(r"^deducted: \w+ .* (-?[\d,.]+)  \w", text, re.MULTILINE)

    taken = sum(float(amount.replace(",", "")) for amount in names)
    left = planned["available_bytes"] - planned["slack_bytes"] - taken
    assert planned["rest_bytes"] == pytest.approx(left, abs=0.003)


@many
@given(runs(), inputs(), st.integers(1, GRID - 1), st.integers(1, GRID - 1))
def test_more_fraction_never_gives_fewer_tokens_nor_more_free_memory(
    run: Run, asked: Inputs, one: int, other: int
) -> None:
    frame = frame_of(facts_of(run), asked)
    less, more = (outlook(frame, step / GRID) for step in sorted((one, other)))

    assert (less.tokens or 0) <= (more.tokens or 0)
    if less.free is not None and more.free is not None:
        assert less.free >= more.free


@many
@given(runs(), inputs(), st.integers(1, 1 << 22))
def test_the_fraction_solved_for_gives_the_tokens_and_the_next_lower_does_not(
    run: Run, asked: Inputs, wanted: int
) -> None:
    asked = asked._replace(mem_fraction_static=None)
    backwards = plan(run, asked, Wishes(tokens=wanted))
    (wish,) = backwards.wishes
    fraction = value(backwards, "mem_fraction_static")

    forwards = plan(run, asked._replace(mem_fraction_static=fraction))
    assert known(forwards, "tokens") == wish.planned
    assert wish.holds == (known(forwards, "tokens") >= wanted)
    frame = frame_of(facts_of(run), asked)
    if wish.holds:
        assert (outlook(frame, fraction - 1 / GRID).tokens or 0) < wanted
    else:
        assert (outlook(frame, (GRID - 1) / GRID).tokens or 0) < wanted


@many
@given(st.integers(0, 100 * GIB), st.floats(0.3, 0.95))
def test_the_fraction_that_keeps_memory_free_keeps_it_and_the_next_higher_does_not(
    wanted: int, fraction: float
) -> None:
    run = made_run(fraction=fraction)
    made = plan(run, None, Wishes(free_bytes=wanted))
    (wish,) = made.wishes
    frame, solved = frame_of(facts_of(run), Inputs()), value(made, "mem_fraction_static")

    if wish.holds:
        assert known(made, "free_bytes") >= wanted
        assert solved == (GRID - 1) / GRID or (outlook(frame, solved + 1 / GRID).free or 0) < wanted
    else:
        assert all((outlook(frame, step / GRID).free or 0) < wanted for step in range(1, GRID, 97))


@many
@given(runs(), inputs(), st.integers(1, 1 << 22), st.integers(0, 50 * GIB))
def test_a_change_that_is_said_to_be_enough_is_enough(run: Run, asked: Inputs, tokens: int, free: int) -> None:
    wishes = Wishes(tokens=tokens, free_bytes=free)
    asked = asked._replace(mem_fraction_static=0.5)
    flags = {"--mem-fraction-static": "mem_fraction_static", "--kv-cache-dtype": "kv_cache_dtype", "--tp": "tp"}

    for lever in plan(run, asked, wishes).levers:
        if lever.enough and lever.flag in flags:
            made = plan(run, asked._replace(**{flags[lever.flag]: lever.value}), wishes)
            assert [wish.holds for wish in made.wishes if wish.holds is not None] == [True] * sum(
                wish.holds is not None for wish in made.wishes
            )
            assert made.starts is not False


@pytest.mark.parametrize("name", recordings())
def test_a_recorded_run_without_changes_is_itself(name: str) -> None:
    made = plan(recorded(name))

    assert made.replays is not False
    for one in made.numbers:
        if one.basis not in {"unknown", "assumed"}:
            assert one.run == one.planned, one.name
            assert one.basis == "measured"


def test_a_wish_that_hangs_on_an_unknown_number_says_what_to_give() -> None:
    lowfrac = recorded("h200-x2-sglang-0.5.14/lowfrac")

    with pytest.raises(CannotPlan, match=r"how many bytes a token takes; give --token-bytes N, or --like PATH"):
        plan(lowfrac, None, Wishes(tokens=1000))

    given_ = plan(lowfrac, Inputs(token_bytes=1 << 15), Wishes(tokens=300_000))
    assert [True] == [wish.holds for wish in given_.wishes]
