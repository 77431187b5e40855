"""Labels as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.report.ranges import ranges


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([], ""),
        (["TP0"], "TP0"),
        ([f"TP{place}" for place in range(512) if place != 7], "TP0-TP6, TP8-TP511"),
        (["DP0 TP0", "DP0 TP1", "DP1 TP0"], "DP0 TP0-TP1, DP1 TP0"),
        (["node-a:TP0", "node-a:TP1", "launcher"], "node-a:TP0-TP1, launcher"),
        (["PP0", "PP1"], "PP0-PP1"),
        (["6", "7"], "6-7"),
        ([f"TP{place}" for place in range(0, 20, 2)], "TP0, TP2, TP4, TP6, TP8, TP10 and 4 more"),
        (["a\x1b1", "a\x1b2"], "a\\x1b1-a\\x1b2"),
    ],
)
def test_labels_that_follow_each_other_are_a_range(labels: list[str], text: str) -> None:
    assert text == ranges(labels)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_every_label_is_in_the_ranges(numbers: set[int]) -> None:
    text = ranges([f"TP{number}" for number in sorted(numbers)], most=len(numbers))

    found = set()
    for part in text.split(", "):
        first, _, last = part.replace("TP", "").partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert numbers == found
