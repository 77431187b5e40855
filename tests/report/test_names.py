"""Names that are told apart, printable and short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sglang_probe.report.names import LONGEST, clipped, rank_names, run_names, worker_name
from sglang_probe.timeline.model import Process, Worker
from tests.report.reported import HOSTILE
from tests.timeline.building import build_run

TEXTS = st.text(max_size=2 * LONGEST) | st.sampled_from(HOSTILE)


@given(TEXTS)
def test_a_name_is_printable_and_no_longer_than_it_may_be(text: str) -> None:
    name = clipped(text)

    assert name.isprintable() and len(name) <= LONGEST
    assert text == name or not text.isprintable() or len(text) > LONGEST


@given(st.lists(TEXTS, max_size=5))
def test_no_two_runs_and_no_two_processes_have_one_name_and_none_has_no_name(texts: list[str]) -> None:
    run = build_run((), "ready")
    for names in (
        run_names([replace(run, run_id=text) for text in texts]),
        rank_names([Process(label=text, role=text) for text in texts]),
    ):
        assert len(texts) == len(set(names))
        assert all(names)


def test_a_further_launch_and_a_second_run_of_a_name_say_so() -> None:
    run = build_run((), "ready", run_id="night")

    assert ["night", "night launch 2", "night (2)"] == run_names([run, replace(run, launch=1), run])


def test_a_process_that_is_no_rank_is_called_what_it_is() -> None:
    processes = [Process(role="launcher"), Process(label="TP0", role="scheduler"), Process(role="launcher")]

    assert ["launcher", "TP0", "launcher (2)"] == rank_names(processes)


@pytest.mark.parametrize(("index", "name"), [(None, "draft"), (0, "draft 0"), (1, "draft 1")])
def test_a_draft_is_numbered_where_its_number_is_known(index: int | None, name: str) -> None:
    assert name == worker_name(Worker(worker="draft", draft_index=index))
