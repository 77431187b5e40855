"""The story's question, "it worked yesterday": what `diff` says of the three things that can have happened since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.testing import GIB
from sglang_probe.testing.story import MEM_FRACTION_STATIC
from tests.story.scenes import LEFT_OVER, SEEN_OF_IT, WORKING, kept, told

Scene = Callable[[str], Path]


@pytest.mark.parametrize(
    ("today", "settles"),
    [
        ("failing", f"--mem-fraction-static {WORKING} -> {MEM_FRACTION_STATIC} explains the outcome"),
        ("left-over", f"left-over pid {LEFT_OVER.pid} {SEEN_OF_IT['name']}, {LEFT_OVER.bytes / GIB:.3f} GiB, explains"),
        ("changed-body", "the changed body of profile_max_num_token explains the outcome"),
    ],
)
def test_one_look_settles_why_it_worked_yesterday(scene: Scene, today: str, settles: str) -> None:
    _, text = told("diff", scene("working"), scene(today))

    assert kept(f"diff-{today}", text) == text
    assert settles in " ".join(text.split("\n\n")[1].split())


def test_all_of_them_make_a_matrix(scene: Scene) -> None:
    _, text = told("diff", *map(scene, ("working", "failing", "left-over", "changed-body")))

    assert kept("diff-matrix", text) == text


def test_a_run_differs_in_nothing_from_itself(scene: Scene) -> None:
    code, text = told("diff", scene("working"), scene("working"))

    assert code == 0
    assert "differ in nothing recorded" in " ".join(text.split())
