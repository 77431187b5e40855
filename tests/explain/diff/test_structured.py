"""Values with parts of their own, and long ones: only where they differ."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.structured import LONGEST, apart, brief, differing
from sglang_probe.explain.diff.wording import told


def test_the_text_of_an_object_is_compared_part_by_part() -> None:
    values = "C(a=1, b=D(c=2, d='x, (y'))", "C(a=1, b=D(c=3, d='x, (y'))"

    assert [("b.c", ("2", "3"))] == [tuple(leaf) for leaf in differing(values)]


def test_mappings_are_compared_part_by_part_and_a_value_without_parts_is_not() -> None:
    assert [("a.b", ("1", None)), ("a.c", (None, "2"))] == [
        tuple(leaf) for leaf in differing(({"a": {"b": 1}}, {"a": {"c": 2}}))
    ]
    assert [] == differing(("plain", "C(a=1)"))
    assert [] == differing((1, 2))


def test_a_long_list_is_counted() -> None:
    assert "52 values, 1 to 52" == brief(str(list(range(1, 53))), "-")
    assert "[1, 2]" == brief("[1, 2]", "-")


@given(st.text("ab", min_size=60, max_size=80), st.text("cd", min_size=1, max_size=60), st.text("ef", min_size=1))
def test_long_texts_are_printed_so_that_they_can_be_told_apart(alike: str, first: str, second: str) -> None:
    shown = apart([alike + first, alike + second])

    assert shown[0] != shown[1]
    assert all(len(one) <= LONGEST + 6 for one in shown)


def test_a_structured_argument_is_told_by_its_parts() -> None:
    values = tuple(f"Config(decode=Phase(backend='full', max_bs={most}), same='{'x' * 60}')" for most in (8, 64))
    row = Row(group="arguments effective", key="cuda_graph_config", values=values)

    assert "cuda_graph_config: decode.max_bs 8 -> 64" == told(row)


@given(st.lists(st.recursive(st.none() | st.text() | st.integers(), st.lists), min_size=2, max_size=3))
def test_no_value_makes_anything_raise(values: list[Any]) -> None:
    differing(values)
    differing([str(value) for value in values])
    told(Row(group="variables", key="X", values=tuple(values)))


def test_brackets_without_end_are_no_parts() -> None:
    assert [] == differing(("C(a=" * 20000, "C(a=1"))
