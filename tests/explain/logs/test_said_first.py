"""What a person reads first of a log: how it ended, one number for a minimum, a value to try, nothing twice."""

from __future__ import annotations

import math
import re
from pathlib import Path

from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.explain.oom_message import parse
from sglang_probe.explain.rules.memory import FIRST_STEP
from sglang_probe.report.explain import explain_text
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Timeline

CASES = Path(__file__).parents[2] / "data" / "cases"
OOM, BUDGET, CUT = "capture_oom_memory_outside_torch", "weights_exceed_static_budget", "token_cap_then_capture"


def timeline(name: str) -> Timeline:
    return build(read([CASES / f"{name}.log"]), alive=lambda _: None)


def told(name: str) -> str:
    made = timeline(name)
    return explain_text(explain(made), made)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_failure_without_a_place_is_told_by_its_error() -> None:
    for text in (told(OOM), timeline_text(timeline(OOM))):
        assert "outcome FAILED: torch.OutOfMemoryError; where and on which rank was not recorded" in flat(text)


def test_one_cause_of_an_out_of_memory_error_is_told_and_its_title_not_repeated() -> None:
    text = told(OOM)

    assert len(re.findall("(?m)^CAUSE", text)) == 1
    assert "Out of memory. " not in text


def test_a_fraction_whose_value_is_unknown_is_lowered_by_a_step_that_covers_what_was_short() -> None:
    (run,) = timeline(OOM).runs
    assert run.failure is not None
    said = parse(f"{run.failure.type}: {run.failure.message}")
    assert said is not None and said.short and said.total
    step = math.ceil(said.short / said.total / FIRST_STEP) * FIRST_STEP

    text = flat(told(OOM))
    assert "By how much is unknown: the fraction in force and the pre-load memory were not recorded" in text
    assert f"try {step:.2f} less first" in text


def test_the_minimum_is_one_number_in_the_cause() -> None:
    cause = told(BUDGET).partition("CAUSE")[2].partition("\n  - ")[0]

    (minimum,) = set(re.findall(r"0\.\d{4}\b", cause))
    budget = timeline(BUDGET).runs[0].processes[0].workers[0].budget
    assert budget is not None and float(minimum) == budget.minimum_viable_fraction_printed
    why = flat(timeline_text(timeline(BUDGET))).partition(" error ")[0]
    assert f"minimum viable fraction {minimum}" in why


def test_where_the_record_ends_leads_where_how_it_ended_is_unknown() -> None:
    (run,) = explain(timeline(CUT)).runs

    assert run.outcome == "unknown"
    assert run.findings[0].rule == "unfinished"


def test_several_processes_are_to_move_or_the_server_and_no_one_of_two() -> None:
    crowded = build(read([CASES.parent / "h200-x2-sglang-0.5.14-failures" / "oom-weights"]), alive=lambda _: None)
    lever = explain(crowded).runs[0].findings[0].lever

    assert lever is not None
    assert lever.says.endswith("and move those processes, or this server, to other devices")
