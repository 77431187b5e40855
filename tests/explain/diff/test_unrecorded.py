"""What no side recorded is unknown and not the same; and what does differ is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sglang_probe.collect.read import read
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.figures import UNRECORDED, what_differs
from sglang_probe.report.diff import diff_text
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import world_size

CASES = Path(__file__).parents[2] / "data" / "cases"
PAIR = ("healthy_tp8", "weights_exceed_static_budget")
SAME = ("nothing recorded differs", "the same, in everything", "differ in nothing", "differs, and yet")


def run_of(name: str) -> Run:
    return build(read([CASES / f"{name}.log"]), alive=lambda _: None).runs[0]


@pytest.mark.parametrize("names", [PAIR, PAIR[::-1]])
def test_two_logs_without_arguments_are_never_called_the_same(names: tuple[str, str]) -> None:
    first, second = map(run_of, names)
    text = " ".join(diff_text(compare((first, second))).split())

    assert not [words for words in SAME if words in text]
    assert UNRECORDED in text.partition("What they were made of")[0]
    assert f"What they were made of unknown: {UNRECORDED}" in text


def test_what_differs_is_named_with_both_values_and_decimals_of_the_log() -> None:
    first, second = map(run_of, PAIR)
    said = what_differs((first, second))

    assert f"the number of ranks ({world_size(first)} -> {world_size(second)})" in said
    for values in ("Qwen2ForCausalLM -> DeepseekV4ForCausalLM", "125.65 GiB", "76.63 -> 137.90 GiB", "ready -> failed"):
        assert values in said
    assert what_differs((first, first)) == ""


def test_a_cause_that_was_not_recorded_is_neither_proven_nor_ruled_out() -> None:
    (cause, *_) = compare((run_of(PAIR[0]), run_of(PAIR[1]))).causes

    assert cause.part == "phase"
    assert cause.explains is None


def test_two_that_end_alike_and_have_no_rank_in_common_still_differ_in_their_figures() -> None:
    first = run_of(PAIR[0])
    ranks = tuple(msgspec.structs.replace(one, label=f"X{one.label}") for one in first.processes[:4])
    said = compare((first, msgspec.structs.replace(first, processes=ranks, missing=()))).says

    assert said[0].startswith(UNRECORDED)
    assert "the number of ranks (8 -> 4)" in said[0]
