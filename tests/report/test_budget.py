"""The budget's formula with its values."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.figures import GIB
from sglang_probe.report.budget import budget_lines
from sglang_probe.timeline.model import Budget, Kv, Timeline, Worker


def of(budget: Budget, kv: Kv | None = None, worker: str = "target") -> list[str]:
    return budget_lines(Worker(worker=worker, budget=budget, kv=kv))


def made(available: int, pre_load: int, fraction: float, deductions: dict[str, int]) -> Budget:
    taken = sum(deductions.values())
    return Budget(
        available_bytes=available,
        pre_load_bytes=pre_load,
        mem_fraction_static=fraction,
        slack_bytes=round(pre_load * (1 - fraction)),
        deductions=deductions,
        rest_bytes=round(available - pre_load * (1 - fraction) - taken),
        minimum_viable_fraction=1 - (available - taken) / pre_load,
        verified=True,
    )


@pytest.fixture
def told(story: Timeline) -> Budget:
    budget = story.runs[0].processes[1].workers[0].budget
    assert budget is not None
    return budget


def test_the_story_is_settled_by_its_own_numbers(told: Budget) -> None:
    assert of(told)[:4] == [
        "rest = available - pre-load x (1 - mem_fraction_static) - deductions",
        "     = 21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB -> no KV cache",
        "minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692",
        "verified: the terms reproduce SGLang's own result exactly",
    ]


sizes = st.integers(min_value=8 * GIB, max_value=300 * GIB)


@given(
    sizes,
    sizes,
    st.floats(min_value=0.01, max_value=0.99),
    st.dictionaries(st.sampled_from(["mamba", "multimodal"]), st.integers(0, 9 * GIB)),
)
def test_who_adds_up_the_printed_values_gets_the_printed_results(
    available: int, pre_load: int, fraction: float, deductions: dict[str, int]
) -> None:
    rest, minimum = of(made(available, pre_load, fraction, deductions))[1:3]

    for line in (rest.lstrip(" ="), minimum.partition("=")[2]):
        formula, result = re.sub(r" GiB.*", "", line).replace(" x ", " * ").rsplit(" = ", 1)
        # Each printed term is right to half of its last decimal; the fraction has six.
        assert eval(formula) == pytest.approx(float(result), abs=0.0045)


def test_a_floor_under_the_slack_is_shown_in_place_of_the_fraction(told: Budget) -> None:
    floored = msgspec.structs.replace(told, slack_bytes=50 * GIB)

    lines = of(floored)

    assert lines[0] == "rest = available - slack - deductions"
    assert "21.697 - 50.000 - 0.000" in lines[1]
    assert "slack is not pre-load x (1 - mem_fraction_static) = 42.300 GiB: SGLang puts a floor under it" in lines


def test_an_unknown_term_is_a_word_because_a_dash_would_be_a_minus(told: Budget) -> None:
    partly = msgspec.structs.replace(told, pre_load_bytes=None, rest_bytes=None, result=None)
    partly = msgspec.structs.replace(partly, minimum_viable_fraction=None)

    lines = of(partly)

    assert lines[1] == "     = 21.697 - unknown x (1 - 0.550) - 0.000 = unknown"
    assert lines[2] == "minimum viable fraction: - (a term of it is unknown)"


def test_a_budget_that_was_never_computed_is_one_line() -> None:
    assert of(Budget(state="interrupted")) == ["no budget was recorded: kv.profile is interrupted"]
    assert of(Budget(pre_load_bytes=2 * GIB, verified_reason="kv.profile never began")) == [
        "pre-load memory 2.000 GiB; no budget was recorded: kv.profile never began"
    ]


@pytest.mark.parametrize(
    ("changes", "kv", "shown"),
    [
        ({"result": 1234567, "result_unit": "tokens"}, None, "-> 1,234,567 tokens"),
        ({"result": 65536 * 10, "result_unit": "bytes"}, Kv(bytes_per_token=65536), "-> 10 tokens"),
        ({"result": 65536, "result_unit": "bytes"}, None, "-> 65,536 B for the KV pool"),
        ({"result": None}, None, "= 1.000 GiB"),
    ],
)
def test_the_result_is_in_the_unit_that_sglang_returned(
    told: Budget, changes: dict[str, object], kv: Kv | None, shown: str
) -> None:
    positive = msgspec.structs.replace(told, rest_bytes=GIB, **changes)

    assert of(positive, kv)[1].endswith(shown)


@pytest.mark.parametrize(
    ("verified", "begins"), [(False, "NOT VERIFIED: the terms do not reproduce"), (None, "not verified: ")]
)
def test_terms_that_do_not_reproduce_the_result_are_told_from_terms_not_compared(
    told: Budget, verified: bool | None, begins: str
) -> None:
    (line,) = [
        line
        for line in of(msgspec.structs.replace(told, verified=verified, verified_reason="another term"))
        if "verified" in line.lower()
    ]

    assert line.startswith(begins)
    assert line.endswith("another term")


@pytest.mark.parametrize(("printed", "shown"), [(0.7692, False), (0.7700, True)])
def test_sglangs_own_minimum_is_shown_where_it_differs(told: Budget, printed: float, shown: bool) -> None:
    lines = of(msgspec.structs.replace(told, minimum_viable_fraction_printed=printed))

    assert any("SGLang's own message" in line for line in lines) == shown


def test_a_negative_draft_is_no_failure(told: Budget) -> None:
    assert any("no failure" in line for line in of(told, worker="draft"))
    assert not any("no failure" in line for line in of(told, worker="target"))


def test_a_draft_with_a_pool_of_its_targets_size_is_not_said_to_have_none(told: Budget) -> None:
    assert of(told, Kv(tokens=20_000), worker="draft")[1].endswith("= -20.603 GiB")


@pytest.mark.parametrize(("apart", "shown"), [(1 << 20, False), ((1 << 20) + 1, True)])
def test_a_ranks_own_figures_are_shown_where_they_differ_and_other_ranks_are_there(
    told: Budget, apart: int, shown: bool
) -> None:
    own = msgspec.structs.replace(
        told, available_local_bytes=(told.available_bytes or 0) + apart, pre_load_local_bytes=None
    )

    assert shown == any("this rank's own" in line for line in of(own))
    assert not any("this rank's own" in line for line in budget_lines(Worker(worker="target", budget=own), alone=True))


def test_a_fraction_beyond_all_bounds_is_printed_without_harm() -> None:
    budget = Budget(pre_load_bytes=1 << 40, available_bytes=1, slack_bytes=1, mem_fraction_static=-1e308, rest_bytes=0)

    assert budget_lines(Worker(worker="target", budget=budget))[0].startswith("rest = available")
