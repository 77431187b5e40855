"""Names of many ranks: short, in their order, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.timeline.label_ranges import LEAST, MANY, named

STAGES = [f"PP{stage} TP{rank}" for stage in range(4) for rank in range(8)]


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ([], ""),
        (["TP0"], "TP0"),
        (["TP0", "TP1"], "TP0, TP1"),
        (["TP0", "TP1", "TP2"], "TP0-TP2"),
        ([f"TP{rank}" for rank in range(200) if rank != 37], "TP0-TP36, TP38-TP199"),
        (STAGES, "PP0-PP3 TP0-TP7"),
        (["DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"], "DP0 TP0-DP1 TP3"),
        ([f"TP{rank} EP{rank}" for rank in range(8)], "TP0 EP0-TP7 EP7"),
        ([f"node-1:TP{rank}" for rank in range(8)], "node-1:TP0-TP7"),
        (["node-1:TP0", "node-1:TP1", "node-2:TP2"], "node-1:TP0, node-1:TP1, node-2:TP2"),
        ([1, 2, 3, 5], "1-3, 5"),
        (["launcher", "TP0", "TP1", "TP2"], "launcher, TP0-TP2"),
        (["TP3", "TP2", "TP1"], "TP3, TP2, TP1"),
    ],
)
def test_ranks_that_follow_one_another_are_a_range(labels: list[object], shown: str) -> None:
    assert named(labels) == shown


def test_more_ranges_than_a_line_bears_are_counted_by_their_ranks() -> None:
    apart = [f"TP{10 * group + rank}" for group in range(MANY + 3) for rank in range(LEAST)]

    assert named(apart).endswith(f"and {3 * LEAST} more")
    assert "more" not in named(apart, None)


def spelt_out(text: str) -> Iterator[str]:
    """The labels of one tensor-parallel group that a text of ranges stands for."""
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        low = int(first.removeprefix("TP"))
        yield from (f"TP{rank}" for rank in range(low, int((last or first).removeprefix("TP")) + 1))


@given(st.lists(st.integers(0, 60), unique=True))
def test_every_label_is_in_the_text_in_its_order(ranks: list[int]) -> None:
    labels = [f"TP{rank}" for rank in ranks]

    assert labels == list(spelt_out(named(labels, None)))


@given(st.lists(st.text(max_size=9) | st.sampled_from(STAGES), max_size=20))
def test_any_text_may_be_a_label(labels: list[str]) -> None:
    assert named(labels, None).startswith(labels[0] if labels else "")
