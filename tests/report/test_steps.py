"""The table of steps: its figures stand in columns, whatever the names are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sglang_probe.report.layout import page
from sglang_probe.report.steps import layout_of, step_name, steps_table
from sglang_probe.timeline.model import Process, Step

GIB = 1 << 30
FIGURES = "94.400 93.900 0.500"


def step(detail: str | None, depth: int = 0, **more: object) -> Step:
    figures = {
        "duration_s": 1.2,
        "free_before_bytes": round(94.4 * GIB),
        "free_bytes": round(93.9 * GIB),
        "cost_bytes": GIB // 2,
        "state": "ok",
    }
    return Step(id="1", parent=None, phase="kv.pool", detail=detail, depth=depth, **{**figures, **more})  # type: ignore[arg-type]


def rows(*steps: Step, width: int = 80) -> list[str]:
    process = Process(host="node-a", pid=1, steps=steps)
    return page([steps_table(process, width)], colour=False).splitlines()[2:]


names = st.lists(
    st.tuples(st.text(max_size=90) | st.text("漢字e\u0301\u200b ", max_size=90), st.integers(0, 50)),
    min_size=1,
    max_size=4,
)


@given(names, st.sampled_from([80, 120]))
def test_every_step_keeps_its_figures_in_the_same_columns_of_the_page(names: list[tuple[str, int]], width: int) -> None:
    shown = rows(*(step(detail, depth) for detail, depth in names), width=width)

    ends = [" ".join(line.split()[-3:]) == FIGURES for line in shown]
    assert sum(ends) == len(names)
    assert len({cell_len(line) for line, has_figures in zip(shown, ends, strict=True) if has_figures}) == 1
    assert max(map(cell_len, shown)) <= width


def test_a_narrower_gap_is_taken_where_it_keeps_names_on_one_line() -> None:
    fits_wide, fits_narrow = "x" * 34, "x" * 38

    (wide,) = rows(step(fits_wide))
    (narrow,) = rows(step(fits_narrow))

    assert "94.400  93.900" in wide
    assert "94.400 93.900" in narrow


def test_a_name_that_is_too_long_goes_on_below_itself_with_the_figures_at_its_end() -> None:
    first, last = rows(step("Communicator " + "y" * 30, depth=2))

    assert first == "    kv.pool Communicator"
    assert last.startswith("        " + "y" * 30)
    assert " ".join(last.split()[-3:]) == FIGURES


@pytest.mark.parametrize(
    ("worker", "index", "shown"),
    [
        (None, None, "kv.pool MHA"),
        ("target", None, "kv.pool MHA"),
        ("draft", None, "kv.pool MHA, draft"),
        ("draft", 1, "kv.pool MHA, draft 1"),
    ],
)
def test_a_step_is_named_by_phase_purpose_and_draft(worker: str | None, index: int | None, shown: str) -> None:
    assert step_name(step("MHA", worker=worker, draft_index=index)) == shown


@pytest.mark.parametrize("state", ["ok", "error", "died", "interrupted", "open"])
def test_every_state_is_shown_by_its_name(state: str) -> None:
    (line,) = rows(step(None, state=state))

    assert line.split()[1] == state


def rooted(remainder: int | None, **more: Any) -> list[str]:
    root = step(None, self_delta_bytes=None if remainder is None else -remainder, **more)
    below = rows(root, step("a", depth=1), step("b", depth=2), width=100)
    return [line for line in below if "between its steps" in line]


@pytest.mark.parametrize(
    ("remainder", "shown"),
    [(16 << 20, "0.016"), (-(16 << 20), "-0.016"), ((16 << 20) - 1, None), (None, None), (GIB, "1.000")],
)
def test_what_a_root_cost_outside_its_steps_has_a_row_where_it_is_much(
    remainder: int | None, shown: str | None
) -> None:
    found = rooted(remainder)

    assert [line.split()[-1] for line in found] == ([] if shown is None else [shown])
    assert all(line.startswith("  (between its steps)") for line in found)


def test_a_remainder_that_holds_steps_of_unknown_cost_says_so() -> None:
    assert "and in those of unknown cost" in " ".join(rooted(GIB, self_includes=("7",)))


def test_a_step_without_steps_inside_has_no_remainder() -> None:
    assert not [line for line in rows(step(None, self_delta_bytes=-GIB)) if "between" in line]


def test_all_tables_of_a_report_have_the_same_columns_and_indentation() -> None:
    wide = Process(host="node-a", pid=1, steps=(step("z" * 36, depth=1, free_before_bytes=1000 * GIB),))
    narrow = Process(host="node-a", pid=2, steps=(step("y", depth=1, state="interrupted", duration_s=None),))
    layout = layout_of([wide, narrow], 80)

    first, second = (page([steps_table(one, 80, layout)], colour=False).splitlines() for one in (wide, narrow))

    assert [first[1].index(word) - first[1].index("secs") for word in ("state", "before")] == [
        second[1].index(word) - second[1].index("secs") for word in ("state", "before")
    ]
    assert [len(line) - len(line.lstrip()) for line in (first[2], second[2])] == [layout.indent] * 2
    assert layout != layout_of([narrow], 80)
