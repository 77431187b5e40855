"""The timeline as text: what a person sees, and what no event can do to the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.report.text import timeline_text
from sglang_probe.timeline.model import Failure, Missing, Timeline

NAMES = ["story", "killed", "ready"]
ANSI = re.compile("\x1b\\[[0-9;]*m")
WHERE = [["sglang-probe-runs/20261129T184500Z-3fa9c1"]]


@pytest.fixture
def timeline(request: pytest.FixtureRequest) -> Timeline:
    built: Timeline = request.getfixturevalue(request.param)
    return built


each_timeline = pytest.mark.parametrize("timeline", NAMES, indirect=True)


@each_timeline
def test_text_is_the_golden_one(timeline: Timeline, golden: Callable[[str], str]) -> None:
    text = timeline_text(timeline, WHERE)

    assert golden(text) == text


@each_timeline
@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(timeline: Timeline, width: int) -> None:
    lines = timeline_text(timeline, WHERE, width).split("\n")

    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if line != line.rstrip()] == []


@each_timeline
def test_colour_adds_escapes_and_changes_no_character(timeline: Timeline) -> None:
    plain, coloured = (timeline_text(timeline, WHERE, colour=colour) for colour in (False, True))

    assert "\x1b" not in plain
    assert coloured != plain
    assert ANSI.sub("", coloured) == plain


def test_an_exception_is_told_once_a_rank_however_many_steps_it_passed(story: Timeline) -> None:
    text = timeline_text(story, everything=True)

    ranks = len([process for process in story.runs[0].processes if process.label])
    assert text.count("Not enough memory") == ranks + 1  # the head says it too
    assert text.count("ModelRunner.init_memory_pool:1731") == ranks


def test_a_process_without_memory_steps_gets_no_block(story: Timeline) -> None:
    text = timeline_text(story)

    assert "== launcher" not in text
    assert "also launcher" in text


def test_nothing_read_is_said(story: Timeline) -> None:
    text = timeline_text(msgspec.structs.replace(story, runs=()))

    assert text == "Read 64 events in 3 files; every line was a whole event.\n"


def with_every_text(value: Any, change: Callable[[str], str], fixed: frozenset[str]) -> Any:
    """Rebuild a structure with each of its strings changed, but those of the fields that are enumerations."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(with_every_text(item, change, fixed) for item in value)
    if isinstance(value, dict):
        return {change(key): with_every_text(item, change, fixed) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {k: v if k in fixed else with_every_text(v, change, fixed) for k, v in fields.items()}
        return type(value)(**changed)
    return value


ENUMERATIONS = frozenset({"state", "outcome", "source", "worker", "limited_by", "result_unit", "kind", "schema"})

hostile = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["\x1b[2J\x1b[31m", "\r\n== TP9: forged", "[red]x[/red]", "\u202egnp", "\x9b31m", "\ud800", ":boom:"]
    ),
)


@given(evil=hostile, name=st.sampled_from(NAMES))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_of_an_event_reaches_the_terminal_as_more_than_text(
    request: pytest.FixtureRequest, evil: str, name: str
) -> None:
    timeline = request.getfixturevalue(name)
    twisted = with_every_text(timeline, lambda text: text[:10] + evil, ENUMERATIONS)

    lines = timeline_text(twisted, [[evil]], everything=True).split("\n")

    assert [line for line in lines if not line.isprintable()] == []
    blocks = len([line for line in lines if line.startswith("== ")])
    assert blocks == len([p for run in timeline.runs for p in run.processes if p.label or p.steps])


def test_markup_stays_what_it_is(story: Timeline) -> None:
    (run,) = story.runs
    failure = Failure(type="[bold]E[/bold]", message="[red]no[/red] :boom: [link=x]y[/link]")

    text = timeline_text(msgspec.structs.replace(story, runs=(msgspec.structs.replace(run, failure=failure),)))

    assert "[bold]E[/bold]: [red]no[/red] :boom: [link=x]y[/link]" in text


def test_an_unknown_figure_is_a_dash_with_its_reason_in_a_note(killed: Timeline) -> None:
    text = timeline_text(killed)

    note = '"-" in dist.init, dist.communicator ProcessGroup world: torch: no_context (no context on device 0 yet)'
    assert note in " ".join(text.split())
    assert re.search(r"^  dist\.init +ok +4\.000 +- +93\.999 +-$", text, re.MULTILINE)
    assert re.search(r"^scheduler\.init +died +- +- +- +-$", text, re.MULTILINE)


def test_a_probe_that_saw_nothing_says_so_at_the_top(killed: Timeline) -> None:
    (run,) = killed.runs
    blind = msgspec.structs.replace(run.health, ok=False, says=("no memory role was hooked",))

    text = timeline_text(msgspec.structs.replace(killed, runs=(msgspec.structs.replace(run, health=blind),)))

    assert text.index("PROBE: no memory role was hooked") < text.index("== TP0")


def test_ranks_that_are_missing_for_one_reason_are_one_line(killed: Timeline) -> None:
    (run,) = killed.runs
    away = tuple(Missing(world_rank=rank, world_size=64, reason="no file of it is here") for rank in range(2, 64))

    text = timeline_text(msgspec.structs.replace(killed, runs=(msgspec.structs.replace(run, missing=away),)))

    line = "ranks 2-63 of 64 are missing: no file of it is here"
    assert line in " ".join(text.split())
    assert "2 of 64 seen" in text


@pytest.mark.parametrize(
    ("started", "ended", "shown"),
    [
        ("2026-11-29T18:45:00.000000001Z", "2026-11-29T18:46:01.500000001Z", "18:45:00 UTC, last event 61.5 s later"),
        ("2026-11-29T18:45:00.000000001Z", None, "18:45:00 UTC"),
        ("2026-11-29T18:45:00.000000001Z", "2026-11-29T18:45:00+01:00", "18:45:00 UTC"),
        ("2026-11-29T18:45:00.000000001Z", "yesterday", "18:45:00 UTC"),
        (None, None, "-"),
    ],
)
def test_when_it_was_is_said_as_far_as_it_is_known(
    story: Timeline, started: str | None, ended: str | None, shown: str
) -> None:
    (run,) = story.runs
    run = msgspec.structs.replace(run, started=started, ended=ended)

    text = timeline_text(msgspec.structs.replace(story, runs=(run,)))

    (line,) = [line for line in text.splitlines() if line.startswith("when ")]
    assert line.endswith(shown)


def test_a_rank_that_was_not_seen_and_events_not_written_stand_at_the_top(story: Timeline) -> None:
    (run,) = story.runs
    *others, last = run.processes
    blind = msgspec.structs.replace(last, no_memory_role=True, lost_events=3, dropped_events=2)
    health = msgspec.structs.replace(run.health, ok=False, says=("nothing hooked", "2 not written"), dropped_events=2)
    seen = msgspec.structs.replace(run, processes=(*others, blind), health=health)

    text = timeline_text(msgspec.structs.replace(story, runs=(seen,)), colour=True)

    for said in health.says:
        assert f"\x1b[1;31mPROBE: {said}" in text
    assert "3 events of" in ANSI.sub("", text)
    assert "lost, 2 of them not written" in ANSI.sub("", text)
