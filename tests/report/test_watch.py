"""A start that goes on: what a person sees of it, and which ranks stand out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_probe.figures import GIB
from sglang_probe.report.layout import page
from sglang_probe.report.watch import LATE_S, survey_of, view_of
from sglang_probe.report.watch_changes import Change, change_text, changes, stamped
from sglang_probe.report.watch_model import View
from sglang_probe.report.watch_text import beat, screen
from sglang_probe.timeline.model import Missing, Run
from tests.report.starting import LOADED_S, at, starting, step

STARTS = {
    "watch-1": (starting(1, loads={0}), at(20.0), {"TP0": 60 * GIB}),
    "watch-8": (starting(8, loads={5}), at(52.5), {}),
    "watch-512": (starting(512, loads={37}, less={200}), at(52.5), {}),
}
each_start = pytest.mark.parametrize("start", [pytest.param(start, id=name) for name, start in STARTS.items()])
Start = tuple[Run, datetime, dict[str, int]]


def seen(run: Run, now: datetime, free: dict[str, int] | None = None) -> View:
    return view_of(survey_of(run), now, free)


def drawn(view: View, width: int = 80, height: int | None = None) -> str:
    return page([screen(view, width, height)], colour=False)


@each_start
def test_screen_and_lines_are_the_golden_ones(start: Start, golden: Callable[[str], str]) -> None:
    view = seen(*start)
    told, _ = changes(survey_of(start[0]), {})
    lines = [stamped(change.at_s, change_text(change)) for change in told]
    lines += [stamped(view.elapsed_s, line) for line in beat(view)]

    text = drawn(view) + "\n" + "".join(f"{line}\n" for line in lines)

    assert golden(text) == text


def test_a_rank_that_its_peers_have_left_behind_is_late_by_the_time_since_they_went_on() -> None:
    view = seen(starting(8, loads={5}), at(60.0))

    (late,) = [row for row in view.rows if row.late_s is not None]
    assert (("TP5",), "weights.load LlamaForCausalLM") == (late.labels, late.now)
    assert (7, 8) == (late.past, late.of)
    assert late.late_s == pytest.approx(60.0 - LOADED_S)
    assert late.took_s == pytest.approx(LOADED_S - 8.0)
    assert late.since_s == pytest.approx(60.0 - 8.0)
    assert view.rows[0] is late
    assert [note.kind for note in view.notes] == ["late"]


def test_a_rank_that_has_not_begun_is_late_against_those_that_have() -> None:
    view = seen(starting(4, before={2}), at(60.0))

    late = view.rows[0]
    assert (("TP2",), "before", 3) == (late.labels, late.state, late.past)
    assert late.late_s == pytest.approx(60.0 - 1.0)


def test_ranks_that_most_have_not_overtaken_are_not_late() -> None:
    ahead = seen(starting(8, loads={0, 1, 2, 3, 4}), at(60.0))
    soon = seen(starting(8, loads={5}), at(LOADED_S + LATE_S / 2))

    assert [row.late_s for row in (*ahead.rows, *soon.rows)] == [None] * 4


def test_what_a_device_lost_since_its_rank_last_read_it_is_told() -> None:
    run = starting(2, loads={0, 1})
    view = seen(run, at(20.0), {"TP0": 70 * GIB, "TP1": 70 * GIB})

    (row,) = view.rows
    assert (70 * GIB, round(94.0 * GIB) - 70 * GIB) == (row.free_bytes, row.taken_bytes)
    assert "24.000 GiB taken since" in " ".join(beat(view))


def test_a_rank_with_less_free_than_its_mates_has_a_row_and_a_note() -> None:
    view = seen(starting(512, less={200}), at(42.0))

    assert [511, 1] == [len(row.labels) for row in view.rows]
    (note,) = view.notes
    assert ("less_free", ("TP200",)) == (note.kind, note.labels)
    assert "0.300 GiB less free than TP0-TP199, TP201-TP511" in note.says


def test_the_host_s_memory_is_nobodys_own() -> None:
    run = starting(8, less={3})
    cpu = tuple(
        process if process.device is None else msgspec.structs.replace(
            process, device=msgspec.structs.replace(process.device, kind="cpu")
        )
        for process in run.processes
    )  # fmt: skip

    view = seen(msgspec.structs.replace(run, processes=cpu), at(42.0), {f"TP{place}": GIB for place in range(8)})

    assert (1, ()) == (len(view.rows), view.notes)
    assert view.rows[0].taken_bytes is None


def test_ranks_that_wrote_nothing_yet_are_counted() -> None:
    missing = tuple(Missing(world_rank=place, world_size=8, reason="") for place in range(6, 8))
    run = starting(6, missing=missing)

    view = seen(run, at(42.0))

    assert (6, 8) == (view.ranks, view.world)
    assert "2 of 8 ranks wrote nothing yet: world ranks 6, 7" in drawn(view)


def test_a_log_is_told_by_its_own_clock() -> None:
    run = starting(2, loads={1})
    processes = tuple(
        msgspec.structs.replace(
            process, steps=tuple(msgspec.structs.replace(one, ts=None, local_time=one.ts) for one in process.steps)
        )
        for process in run.processes
    )
    log = msgspec.structs.replace(run, source="log", started=None, local_started=run.started, processes=processes)

    assert seen(log, at(60.0)).rows == seen(run, at(60.0)).rows


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 24),
    loads=st.sets(st.integers(0, 23)),
    less=st.sets(st.integers(0, 23)),
    before=st.sets(st.integers(0, 23)),
    seconds=st.floats(0, 200),
    width=st.integers(40, 120),
    height=st.integers(1, 50),
)
def test_every_rank_is_in_one_row_and_no_line_is_too_wide_or_too_many(
    size: int, loads: set[int], less: set[int], before: set[int], seconds: float, width: int, height: int
) -> None:
    view = seen(starting(size, loads, less, before), at(seconds))
    lines = drawn(view, width, height).splitlines()

    assert sorted(label for row in view.rows for label in row.labels) == sorted(f"TP{place}" for place in range(size))
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []
    assert len(lines) <= height
    assert all(row.since_s is None or row.since_s >= 0 for row in view.rows)


@pytest.mark.parametrize("name", ['"', "</script>", "a\nb\x1b[2J\x00", "\u202egnp", "\ud800", "x" * 30_000])
def test_no_name_from_outside_acts_on_the_terminal(name: str) -> None:
    run = starting(2)
    evil = step(f"weights.load {name}", 1, 42.0, 12.0, None, None)
    processes = tuple(
        msgspec.structs.replace(process, label=f"{name}:{process.label}", steps=(*process.steps[:-1], evil))
        if process.label
        else msgspec.structs.replace(process, role=name)
        for process in run.processes
    )
    odd = msgspec.structs.replace(run, processes=processes, run_id=name)
    view, (told, _) = seen(odd, at(60.0)), changes(survey_of(odd), {})

    lines = [*drawn(view).split("\n"), *beat(view), *(change_text(change) for change in told)]

    assert [line for line in lines if not line.isprintable()] == []


def test_what_is_new_is_told_once_and_of_what_is_over_only_the_end() -> None:
    survey = survey_of(starting(8, loads={5}))
    told, come = changes(survey, {})
    again, _ = changes(survey, come)
    later, _ = changes(survey_of(starting(8)), come)

    texts = [change_text(change) for change in told]
    assert "TP0-TP7 (8): dist.init ended; took 4.500 s, cost 0.400 GiB, 94.000 GiB free" in texts
    assert not any("dist.init began" in text for text in texts)
    assert "TP5: weights.load LlamaForCausalLM began; 94.000 GiB free" in texts
    assert () == again
    assert [("TP5",)] * 2 == [change.labels for change in later]
    assert ["ended", "began"] == [change.kind for change in later]


def test_ranks_of_equal_labels_are_two() -> None:
    run = starting(4)
    alike = tuple(
        msgspec.structs.replace(one, label=one.label and f"node-a:TP{(one.pid or 0) % 2}") for one in run.processes
    )
    survey = survey_of(msgspec.structs.replace(run, processes=alike))
    view, (told, _) = view_of(survey, at(50.0)), changes(survey, {})

    assert (4, 4) == (view.ranks, len({label for row in view.rows for label in row.labels}))
    assert {4} == {len(change.labels) for change in told}
    assert "node-a:TP1 (pid 4711)" in view.rows[0].labels


def test_a_long_time_late_is_told_as_elsewhere() -> None:
    (note,) = seen(starting(8, loads={5}), at(50_000.0)).notes

    assert "late by 13 h 52 min: weights.load LlamaForCausalLM for 13 h 53 min" in note.says


def test_several_ranks_are_ready() -> None:
    change = Change(labels=("TP0", "TP1"), kind="ended", phase="scheduler.init", what="scheduler.init", at_s=1.0)

    assert "TP0, TP1 (2): are ready" == change_text(change)


@pytest.mark.parametrize("height", range(3, 12))
def test_a_low_window_shows_the_row_that_matters_most(height: int) -> None:
    run = starting(8, loads={5}, less={1, 2}, before={7})

    lines = drawn(seen(run, at(60.0)), 80, height).splitlines()

    assert len(lines) <= height
    assert any(line.startswith("TP") for line in lines)


def test_the_steps_of_a_rank_come_in_their_order_though_stamps_say_otherwise() -> None:
    run = starting(1)
    steps = (step("weights.load M", 0, 1.0, 94.0, 20.0, 100.0), step("kv.profile", 0, 1.0, 20.0, 20.0, 0.0))
    ranks = tuple(msgspec.structs.replace(one, steps=steps) if one.label else one for one in run.processes)
    told, _ = changes(survey_of(msgspec.structs.replace(run, processes=ranks)), {})

    assert ["weights.load M", "kv.profile"] == [change.what for change in told]
    assert {101.0} == {change.at_s for change in told}
