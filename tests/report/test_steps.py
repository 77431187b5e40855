"""The table of steps: its figures stand in columns, whatever the names are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sglang_probe.report.layout import page
from sglang_probe.report.steps import step_name, steps_table
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
    return page([[steps_table(process, width)]], colour=False).splitlines()[2:]


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
