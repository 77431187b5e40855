"""Findings as text: narrow enough, the same with colour, and nothing that an event can do to the terminal."""

from __future__ import annotations

import re

import msgspec
import pytest

from sglang_probe.explain.engine import explain
from sglang_probe.report.explain import SEVERITY_WORDS, explain_text
from sglang_probe.timeline.model import Failure, Run, Timeline
from tests.explain.explaining import READ, failed, raising, rank, ready, tenant

ANSI = re.compile("\x1b\\[[0-9;]*m")
HOSTILE = "\x1b]0;owned\x07<script>\u202e\n\x00"
RUNS: dict[str, Run] = {
    "story": failed(rank(0), rank(1)),
    "tenant": failed(rank(0), rank(1, pre_load=84.0, available=11.7, fraction=0.85, tenants=(tenant(10.0),))),
    "empty": failed(rank(0, 1, pre_load=94.0, available=5.0, weights=89.0)),
    "crash": raising("weights.load", "size mismatch " * 30, "builtins.ValueError", free=50.0),
    "ready": ready(rank(0, 1, available=80.0, weights=14.0)),
}
each_run = pytest.mark.parametrize("name", RUNS)


def text_of(run: Run, width: int = 80, *, colour: bool = False) -> str:
    timeline = Timeline(runs=(run,), read=READ)
    return explain_text(explain(timeline), timeline, width, colour=colour)


@each_run
@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(name: str, width: int) -> None:
    lines = text_of(RUNS[name], width).split("\n")

    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if line != line.rstrip()] == []


@each_run
def test_colour_adds_escapes_and_changes_no_character(name: str) -> None:
    plain, coloured = text_of(RUNS[name]), text_of(RUNS[name], colour=True)

    assert "\x1b" not in plain
    assert ANSI.sub("", coloured) == plain


@each_run
def test_every_finding_is_printed_once_the_leading_one_first(name: str) -> None:
    found = explain(Timeline(runs=(RUNS[name],), read=READ)).runs[0].findings
    text = text_of(RUNS[name])

    titles = re.findall(rf"^({'|'.join(SEVERITY_WORDS.values())}): ", text, re.MULTILINE)
    assert [SEVERITY_WORDS[one.severity] for one in found] == titles


def test_names_and_messages_from_outside_cannot_act_on_the_terminal() -> None:
    failure = Failure(id="e1", type=HOSTILE, message=HOSTILE, raised_in=HOSTILE)
    run = failed(rank(0, 1, tenants=(tenant(10.0, name=HOSTILE, user=HOSTILE),)), failure=failure)
    run = msgspec.structs.replace(run, run_id=HOSTILE, failed_label=HOSTILE, outcome_reason=HOSTILE)

    assert all(line.isprintable() for line in text_of(run).split("\n"))


def test_a_run_about_which_nothing_is_to_be_said_says_so() -> None:
    run = msgspec.structs.replace(ready(), processes=())

    assert "Nothing was found" in text_of(run)
