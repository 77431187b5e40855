"""The lines that `watch` writes into a pipe: what is new, of the run that is told, at times that never go back."""

from __future__ import annotations

import re

import msgspec
import pytest

from sglang_probe.cli import watch_output
from sglang_probe.cli.watch_output import Lines
from sglang_probe.report.watch import survey_of, view_of
from sglang_probe.report.watch_changes import Change
from sglang_probe.report.watch_model import View
from sglang_probe.timeline.model import Run
from tests.report.starting import at, starting


def view(run: Run, seconds: float = 50.0) -> View:
    return view_of(survey_of(run), at(seconds))


def without(run: Run, *pids: int) -> Run:
    gone = tuple(msgspec.structs.replace(one, alive=one.pid not in pids) for one in run.processes)
    return msgspec.structs.replace(run, processes=gone)


def test_of_those_who_are_gone_only_the_new_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    lines, run = Lines(), starting(2)
    for pids in ((4711,), (4711,), (4711, 4712)):
        lines.show(view(without(run, *pids)), ())

    said = [line for line in capsys.readouterr().out.splitlines() if "GONE" in line]
    assert ["GONE TP0: its process is gone (pid 4711)", "GONE TP1: its process is gone (pid 4712)"] == [
        line.split("  ", 2)[-1].strip() for line in said
    ]


def test_what_was_said_of_one_run_is_said_of_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    lines, late = Lines(), starting(8, loads={5})
    lines.show(view(late), ())
    lines.begin()
    lines.show(view(msgspec.structs.replace(late, run_id="another")), ())

    out = capsys.readouterr().out
    assert out.count("LATE TP5") == 2
    assert "another run is told from here on: watching another, SGLang 0.5.9" in out


def test_times_never_go_back_and_what_came_before_says_when(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for seconds, begun in ((50.0, 1.0), (52.0, 51.9), (53.0, 8.0)):
        told = Change(labels=("TP0",), kind="began", phase="weights.load", what="weights.load", at_s=begun)
        lines.show(view(starting(8, loads={5}), seconds), (told,))

    out = capsys.readouterr().out
    times = [float(found) for found in re.findall(r"^ *\+([0-9.]+) s  ", out, re.MULTILINE)]
    assert len(times) >= 3
    assert times == sorted(times)
    assert "weights.load began (at +8.0 s)" in out


def test_for_how_long_is_waited_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_output, "BEAT_S", -1.0)
    lines = Lines()
    lines.wait("waiting for a run")
    lines.wait("waiting for a run")

    assert re.search(r"still waiting, for 0\.\d s so far", capsys.readouterr().out)
