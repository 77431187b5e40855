"""The plan as text: what a person sees, and what no event can do to the terminal."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Plan
from sglang_probe.explain.plan.names import NAMES
from sglang_probe.report.plan import plan_text
from tests.explain.plan.making import CAR, GIB, made_run, recorded, recordings

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile("\x1b\\[[0-9;]*m")
FAILURES = "h200-x2-sglang-0.5.14-failures"
PLANS = {
    "plan-solved": plan(recorded(CAR), None, Wishes(tokens=400_000, free_bytes=6 * GIB)),
    "plan-against": plan(recorded(CAR), against=recorded(f"{FAILURES}/leftover")),
    "plan-impossible": plan(recorded(CAR), Inputs(cuda_graph_max_bs=512), Wishes(tokens=5_000_000)),
    "plan-refused": plan(recorded("h200-x2-sglang-0.5.14/lowfrac")),
    "plan-deductions": plan(made_run(deductions={"mamba": 2 * GIB}), Inputs(mem_fraction_static=0.9, tp=4)),
}
each_plan = pytest.mark.parametrize("name", PLANS)


@each_plan
def test_text_is_the_golden_one(name: str) -> None:
    text, path = plan_text(PLANS[name]), GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text


@each_plan
@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(name: str, width: int) -> None:
    lines = plan_text(PLANS[name], width).split("\n")

    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if line != line.rstrip()] == []


@each_plan
def test_colour_adds_escapes_and_changes_no_character(name: str) -> None:
    plain, coloured = (plan_text(PLANS[name], colour=colour) for colour in (False, True))

    assert "\x1b" not in plain
    assert plain == ANSI.sub("", coloured) != coloured


@each_plan
def test_every_number_has_a_row_with_its_basis(name: str) -> None:
    text = plan_text(PLANS[name])

    for number in PLANS[name].numbers:
        shown = NAMES.get(number.name, number.name.replace("deductions.", "deducted: "))
        assert re.search(rf"^{re.escape(shown)} .*  {number.basis}", text, re.MULTILINE), number.name


@each_plan
def test_an_unknown_number_says_why(name: str) -> None:
    assert [] == [one.name for one in PLANS[name].numbers if one.planned is None and not one.says]


def test_text_of_events_cannot_act_on_the_terminal() -> None:
    made: Plan = PLANS["plan-solved"]
    bad = "\x1b[31mred\x07\u202e"
    source = msgspec.structs.replace(made.run, run_id=bad, sglang_version=bad, rank=bad, failed_phase=bad)
    text = plan_text(msgspec.structs.replace(made, run=source, other=source, against=made.against, formula=bad))

    assert not {"\x1b", "\x07", "\u202e"} & set(text)


@pytest.mark.parametrize("other", [name for name in recordings() if name != CAR])
def test_errors_against_another_run_re_add_as_printed(other: str) -> None:
    text = plan_text(plan(recorded(CAR), against=recorded(other))).partition("\nAgainst ")[2].partition("\n\n")[0]
    rows = re.findall(r" +(-?[\d,.]+) +(-?[\d,.]+) +(-?[\d,.]+)$", text, re.MULTILINE)

    assert rows
    for row in rows:
        predicted, measured, error = (round(float(figure.replace(",", "")) * 10_000) for figure in row)
        assert error == predicted - measured, row
