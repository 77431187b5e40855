"""`diff` as a user runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.explain.diff.pairs import FIRST, SECOND

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
WriteRun = Callable[..., Path]
Events = list[dict[str, object]]


def said(text: str) -> str:
    return " ".join(text.split())


def test_two_runs_are_compared_and_the_answer_stands_first(probe: Probe) -> None:
    shown = probe("diff", FIRST / "nocar", FIRST / "car")

    assert shown.returncode == 0, shown.stderr
    head = shown.stdout.split("\n\n")[1]
    assert "custom all-reduce on: +0.033 GiB, -989 tokens" in said(head)


def test_provenance_stands_before_phases_and_those_before_the_sentences(probe: Probe) -> None:
    text = probe("diff", FIRST / "nocar", FIRST / "car").stdout
    titles = ["In one look", "What they were made of", "Phases and categories", "What it comes to"]

    assert sorted(text.index(title) for title in titles) == [text.index(title) for title in titles]


def test_no_line_is_wider_than_a_page(probe: Probe) -> None:
    runs = [FIRST / "car", FIRST / "nocar", FIRST / "lowfrac", SECOND / "leftover", SECOND / "oom-capture"]
    for words in (runs, runs[:2], runs[1:3], [runs[0], *runs[3:]]):
        lines = probe("diff", *words).stdout.splitlines()
        assert [line for line in lines if len(line) > 80] == []
        assert [line for line in lines if line != line.rstrip()] == []


def test_json_has_the_documented_shape(probe: Probe) -> None:
    shown = probe("diff", FIRST / "car", FIRST / "nocar", "--format", "json")

    told = json.loads(shown.stdout)
    assert told["schema"] == "diff/1.0"
    assert {"sides", "provenance", "ranks", "experiment", "causes", "says"} <= told.keys()
    assert ["car", "nocar"] == [side["run_id"] for side in told["sides"]]
    (tp0, tp1) = told["ranks"]
    assert ["TP0", "TP1"] == [tp0["label"], tp1["label"]]
    (allreduce,) = [row for row in tp0["ledger"] if row["category"] == "custom_allreduce"]
    assert allreduce["bytes"][1] - allreduce["bytes"][0] == allreduce["delta_bytes"]


def test_a_run_compared_with_itself_says_so_and_nothing_else(probe: Probe) -> None:
    shown = probe("diff", FIRST / "car", FIRST / "car")

    assert "these two differ in nothing recorded" in said(shown.stdout)
    assert "What they were made of" not in shown.stdout


def test_all_prints_what_is_the_same_and_what_differs_by_nature(probe: Probe) -> None:
    shown = probe("diff", FIRST / "car", SECOND / "car", "--all")

    assert "--port: a port is whichever was free" in said(shown.stdout)
    assert "--tp 2" in said(shown.stdout)


def test_a_matrix_has_a_column_a_side(probe: Probe) -> None:
    told = probe("diff", FIRST / "car", FIRST / "nocar", FIRST / "lowfrac").stdout

    assert "car -> nocar -> lowfrac" in told
    assert any(line.split() == ["A", "B", "C"] for line in told.splitlines())
    assert "A -> B: custom all-reduce off" in said(told)
    assert "A -> C: --mem-fraction-static not given -> 0.03" in said(told)


def test_either_side_may_be_a_file_or_standard_input(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "night-1", failing)
    (file,) = run.iterdir()

    for words in ((run, file), ("-", run), (file, "-")):
        shown = probe("diff", *words, stdin=file.read_text(encoding="utf-8"))
        assert shown.returncode == 0, shown.stderr
        assert "these two differ in nothing recorded" in said(shown.stdout)


def test_standard_input_is_read_once(probe: Probe) -> None:
    shown = probe("diff", "-", "-")

    assert (shown.returncode, shown.stdout) == (2, "")
    assert "named more than once" in shown.stderr


def test_a_side_of_several_runs_is_refused_with_their_names(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    first = write_run(tmp_path / "one", failing)
    second = write_run(tmp_path / "two", [{**event, "run_id": "night-2", "pid": 5000} for event in failing])
    both = "".join(file.read_text(encoding="utf-8") for run in (first, second) for file in run.iterdir())
    shown = probe("diff", first, "-", stdin=both)

    assert shown.returncode == 2
    assert len(shown.stderr.splitlines()) == 1
    assert "night-1" in shown.stderr and "night-2" in shown.stderr
    assert "give the directory of one run" in shown.stderr


def test_a_side_without_a_run_is_refused(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        shown = probe("diff", FIRST / "car", path)
        assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 1)


def test_a_side_of_a_newer_schema_with_unknown_keys_is_compared(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "one", failing)
    (tmp_path / "two").mkdir()
    newer = [{**event, "schema": "1.9", "surplus": {"a": 1}} for event in failing]
    (tmp_path / "two" / "node-a.4711.88.jsonl").write_text("".join(json.dumps(one) + "\n" for one in newer))
    shown = probe("diff", run, tmp_path / "two")

    assert shown.returncode == 0, shown.stderr
    assert "differ in nothing" in said(shown.stdout)


def test_what_was_lost_while_reading_is_said_of_its_side(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    whole = write_run(tmp_path / "one", failing)
    torn = write_run(tmp_path / "two", failing[:-1], tail=json.dumps(failing[-1], separators=(",", ":")).encode()[:100])
    shown = probe("diff", whole, torn)

    assert shown.returncode == 0
    assert "candidate: 1 x the last line of a file is cut off" in said(shown.stdout)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_of_an_event_acts_on_the_terminal(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path, form: str
) -> None:
    first = write_run(tmp_path / "one", failing)
    evil = "\x1b[2J \x9b31m \u202egnp \r\n[red]x[/red]"
    changed = {**failing[0], "attributes": {"versions": {"sglang": evil}, "environment": {"NCCL_X": evil}}}
    second = write_run(tmp_path / "two", [changed, *failing[1:]])
    shown = probe("diff", first, second, "--format", form).stdout

    assert not {"\x1b", "\x9b", "\u202e", "\r", "\x07"} & set(shown)
