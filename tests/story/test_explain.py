"""The story of DESIGN.md, explained in one look: each scene's report is a golden file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.story.scenes import LEFT_OVER, SCENES, kept, told

Scene = Callable[[str], Path]
CAUSES = {
    "failing": ["weights_exceed_budget"],
    "working": [],
    "left-over": ["left_over", "weights_exceed_budget"],
    "changed-body": ["fraction_in_force"],
}


def findings(run: Path) -> list[dict[str, Any]]:
    _, text = told("explain", "--format", "json", run)
    return list(json.loads(text)["runs"][0]["findings"])


@pytest.mark.parametrize("name", SCENES)
def test_what_is_said_of_a_scene_is_the_golden_report(scene: Scene, name: str) -> None:
    code, text = told("explain", scene(name))

    assert kept(f"explain-{name}", text) == text
    assert bool(CAUSES[name]) == bool(code)


@pytest.mark.parametrize("name", SCENES)
def test_the_causes_of_a_scene_are_these_in_this_order(scene: Scene, name: str) -> None:
    assert CAUSES[name] == [one["rule"] for one in findings(scene(name)) if one["severity"] == "error"]


def test_the_story_s_questions_are_each_a_line_with_numbers(scene: Scene) -> None:
    _, text = told("explain", scene("failing"))

    for answer in (
        "rest = 21.697 - 93.999 x (1 - 0.550) = -20.603 GiB",  # which numbers
        "minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692",  # which fraction
        "It cannot be the cause",  # the custom all-reduce
        "94.974 GiB is what CUDA gives of the card; 0.975 GiB went",  # where the 0.93 GiB went, 0.975 on the poorest
    ):
        assert answer in text


def test_the_left_over_is_named_by_pid_and_would_have_made_the_difference(scene: Scene) -> None:
    lead = findings(scene("left-over"))[0]

    assert [LEFT_OVER.pid] == [one["pid"] for one in lead["numbers"]["processes"]]
    assert lead["lever"]["enough"] is True
    assert LEFT_OVER.bytes * 0.80 == pytest.approx(lead["lever"]["gain_bytes"], rel=1e-6)


def test_a_changed_body_is_not_taken_for_a_fraction_that_is_in_force(scene: Scene) -> None:
    lead = findings(scene("changed-body"))[0]

    assert "contradicts that fraction" in lead["says"]
    assert lead["numbers"]["implied_fraction"] < lead["numbers"]["mem_fraction_static_given"]
