"""What the answer says: the whole range, the fraction to try, what is not known, and what would not work."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.feasible import interval_of
from sglang_probe.explain.model import Lever
from sglang_probe.explain.plan.inputs import FLAGS, Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import CannotPlan
from sglang_probe.explain.plan.server import MLA
from sglang_probe.explain.plan.wishes import GRID
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib, number
from sglang_probe.timeline.model import Run, Step
from tests.explain.explaining import findings
from tests.explain.plan.making import CAR, GIB, MIB, known, made_run, recorded, recordings, value

THUMB: dict[str, Any] = {"chunked_prefill_size": 8192, "cuda_graph_max_bs": 8}


def refused(model_class: str | None = None, **settings: int) -> Run:
    """Return a run whose budget was empty, so that no pool says what a token is like."""
    run = made_run(available=20 * GIB, pre_load=90 * GIB, weights=70 * GIB, fraction=0.5, **settings)  # type: ignore[arg-type]
    (process,) = run.processes

    def named(step: Step) -> Step:
        if step.phase != "weights.load":
            return step
        return msgspec.structs.replace(step, attributes={**step.attributes, "model_class": model_class})

    steps = tuple(map(named, process.steps))
    return msgspec.structs.replace(run, processes=(msgspec.structs.replace(process, steps=steps),))


@pytest.mark.parametrize("model_class", sorted(MLA))
def test_mla_is_known_by_the_models_class_where_no_pool_was_built(model_class: str) -> None:
    run = refused(model_class)

    assert value(plan(run), "bytes_per_token") == value(plan(run, Inputs(tp=4)), "bytes_per_token")
    found = plan(run, Inputs(tp=4)).number("bytes_per_token")
    assert found is not None
    assert ("measured", "token_mla") == (found.basis, found.rule)
    assert found.lowest is None


@pytest.mark.parametrize("model_class", [None, "LlamaForCausalLM"])
def test_where_it_is_not_known_if_a_token_shrinks_the_tokens_are_a_range(model_class: str | None) -> None:
    made = plan(refused(model_class), Inputs(tp=4, mem_fraction_static=0.8))
    tokens, token = made.number("tokens"), made.number("bytes_per_token")

    assert tokens is not None
    assert token is not None
    assert ("assumed", "token_unknown") == (token.basis, token.rule)
    assert (1 << 15, 1 << 16) == (token.lowest, token.highest)
    assert known(made, "rest_bytes") // (1 << 16) == tokens.planned == tokens.lowest
    assert known(made, "rest_bytes") // (1 << 15) == tokens.highest
    assert f"Or up to {number(known(made, 'rest_bytes') // (1 << 15))} tokens" in " ".join(made.says)


def test_what_would_make_room_has_the_same_range() -> None:
    (lever,) = [one for one in plan(refused(), Inputs(mem_fraction_static=0.45)).levers if one.flag == "--tp"]
    made = plan(refused(), Inputs(mem_fraction_static=0.45, tp=4))
    most = made.number("tokens")

    assert most is not None
    assert f"{number(known(made, 'tokens'))} tokens (up to {number(int(most.highest or 0))}" in lever.says


def test_given_kv_heads_settle_whether_a_token_shrinks() -> None:
    made = plan(refused(), Inputs(tp=4, kv_heads=8, mem_fraction_static=0.8))

    assert 1 << 15 == value(made, "bytes_per_token")


def test_wishes_are_answered_with_every_fraction_that_does_it() -> None:
    made = plan(recorded(CAR), None, Wishes(tokens=400_000, free_bytes=6 * GIB))

    assert made.lowest is not None
    assert made.highest is not None
    assert value(made, "mem_fraction_static") == made.lowest.mem_fraction_static
    for end in (made.lowest, made.highest):
        again = plan(recorded(CAR), Inputs(mem_fraction_static=end.mem_fraction_static))
        assert (end.tokens, end.free_bytes) == (value(again, "tokens"), value(again, "free_bytes"))
        assert known(again, "tokens") >= 400_000
        assert known(again, "free_bytes") >= 6 * GIB
    beyond = plan(recorded(CAR), Inputs(mem_fraction_static=made.highest.mem_fraction_static + 1 / GRID))
    assert known(beyond, "free_bytes") < 6 * GIB
    said = " ".join(made.says)
    assert (
        f"Any fraction from {made.lowest.mem_fraction_static} ({number(made.lowest.tokens)} tokens,"
        f" {gib(made.lowest.free_bytes)} GiB free) to {made.highest.mem_fraction_static}"
        f" ({number(made.highest.tokens)} tokens, {gib(made.highest.free_bytes)} GiB free) does it; planned here is the"
        " lowest"
    ) in said
    assert "less stays free than the 12.000 GiB that SGLang's own rule of thumb reserves" in said


def test_a_plan_that_keeps_less_free_than_the_reserve_for_activations_says_so() -> None:
    short = " ".join(plan(recorded(CAR), Inputs(mem_fraction_static=0.95)).says)

    assert "less than the 12.000 that SGLang's own rule of thumb reserves for the activations of serving" in short
    assert "rule of thumb" not in " ".join(plan(recorded(CAR)).says)


@given(st.integers(1 << 10, 1 << 20), st.integers(14 * GIB, 60 * GIB), st.floats(0.01, 0.1))
def test_an_empty_budget_is_given_the_fraction_that_explain_gives(token: int, available: int, fraction: float) -> None:
    run = made_run(available=available, token=token, fraction=fraction, **THUMB)
    subject = Subject(run)
    assert subject.tightest is not None
    interval = interval_of(subject, subject.tightest)
    assert interval is not None
    made = plan(run)
    if made.starts is not False or interval.advice is None:
        return

    lever = next(one for one in made.levers if one.flag == "--mem-fraction-static")
    assert interval.advice == lever.value
    assert "the least is " in lever.says or lever.value == interval.lowest
    assert "SGLang's own rule of thumb" in lever.says
    assert f"Try {interval.advice:.3f}" in " ".join(made.says)
    assert plan(run, Inputs(mem_fraction_static=lever.value)).starts is not False


FIELDS = {flag: name for name, flag in FLAGS.items()}
SWITCHES = {"--disable-custom-all-reduce": False}


def _levers(run: Run) -> list[Lever]:
    return [lever for one in findings(run) for lever in (one.lever, *one.levers) if lever is not None]


@pytest.mark.parametrize(
    "run",
    [
        *(recorded(name) for name in recordings() if recorded(name).failed_phase == "kv.profile"),
        made_run(available=10 * GIB, weights=80 * GIB, fraction=0.5, **THUMB),
        made_run(available=20 * GIB, weights=70 * GIB, fraction=0.5, **THUMB),
    ],
    ids=lambda run: run.run_id,
)
def test_what_explain_says_is_enough_starts_by_the_plan(run: Run) -> None:
    for lever in _levers(run):
        if lever.enough and lever.flag in FIELDS and (lever.value is not None or lever.flag in SWITCHES):
            asked = Inputs(**{FIELDS[lever.flag]: SWITCHES.get(lever.flag, lever.value)})
            to_go_with = re.search(r"with --mem-fraction-static ([\d.]+)", lever.says)
            if to_go_with is not None:
                asked = asked._replace(mem_fraction_static=float(to_go_with[1]))
            wishes = Wishes() if lever.flag == "--mem-fraction-static" else Wishes(tokens=1)
            try:
                assert plan(run, asked, wishes).starts is not False, lever
            except CannotPlan:
                assert run.run_id == "lowfrac"  # which never said how many bytes a token takes


def test_a_fraction_that_only_the_reserve_forbids_is_explains_own_and_said_to_be_tight() -> None:
    run = made_run(available=10 * GIB, weights=80 * GIB, fraction=0.5, **THUMB)
    (theirs,) = [lever.value for lever in _levers(run) if lever.flag == "--mem-fraction-static"]
    made = plan(run)

    assert [theirs] == [lever.value for lever in made.levers if lever.flag == "--mem-fraction-static"]
    assert f"{theirs} would start, but serving may run out of memory" in " ".join(made.says)


def test_given_bytes_of_a_token_scale_the_pools_too() -> None:
    made = plan(recorded(CAR), Inputs(token_bytes=16384))
    halved = plan(recorded(CAR), Inputs(kv_cache_dtype="fp8_e5m2"))

    assert value(halved, "kv_pool_bytes") == value(made, "kv_pool_bytes")
    assert known(made, "kv_pool_bytes") == pytest.approx(known(made, "tokens") * 16384, abs=128 * MIB)


def test_a_cache_without_room_for_one_full_request_says_so() -> None:
    made = plan(recorded(CAR), Inputs(max_total_tokens=1))

    assert made.says[0].startswith("1 token at ")
    assert "Not one request of the full context length fits" in " ".join(made.says)
    assert "0 requests" not in " ".join(made.says)
    assert "Not one request" not in " ".join(plan(recorded(CAR), Inputs(max_total_tokens=8192)).says)


@pytest.mark.parametrize(("tp", "heads", "warned"), [(3, None, True), (4, None, False), (1, None, False), (4, 6, True)])
def test_a_tp_that_may_not_divide_is_said_to(tp: int, heads: int | None, warned: bool) -> None:
    said = " ".join(plan(recorded(CAR), Inputs(tp=tp, kv_heads=heads)).says)

    assert warned == (f"--tp {tp} may not start" in said)


def test_a_wish_and_a_run_to_predict_are_two_questions() -> None:
    with pytest.raises(CannotPlan, match="ask for one of the two"):
        plan(recorded(CAR), None, Wishes(tokens=1), against=recorded("h200-x2-sglang-0.5.14/nocar"))
