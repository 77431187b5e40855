"""`explain` from outside: exit codes, forms of output, bad use."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = Path(__file__).resolve().parents[1] / "data" / "h200-x2-sglang-0.5.14"


def test_a_failed_start_exits_1_and_a_healthy_one_0(probe: Probe) -> None:
    assert probe("explain", DATA / "lowfrac").returncode == 1
    assert probe("explain", DATA / "car").returncode == 0


def test_text_and_json_tell_the_same_findings_in_the_same_order(probe: Probe) -> None:
    text = probe("explain", DATA / "lowfrac").stdout
    document = json.loads(probe("explain", DATA / "lowfrac", "--format", "json").stdout)

    (run,) = document["runs"]
    assert document["schema"] == "explain/1.0"
    said = " ".join(text.split())
    places = [said.index(" ".join(one["says"].split())) for one in run["findings"]]
    assert sorted(places) == places


def test_a_run_with_several_launches_or_parts_is_explained_run_by_run(probe: Probe) -> None:
    document = json.loads(probe("explain", DATA / "car", DATA / "lowfrac", "--format", "json").stdout)

    assert {"car": "ready", "lowfrac": "failed"} == {run["run_id"]: run["outcome"] for run in document["runs"]}


def test_one_file_of_a_run_is_explained_as_far_as_it_goes(probe: Probe) -> None:
    file = sorted((DATA / "lowfrac").glob("*.jsonl"))[1]

    assert "minimum viable fraction = 1 - 134.030 / 138.280 = 0.0308" in probe("explain", file).stdout


def test_wanted_tokens_that_cannot_be_weighed_are_said_to_be_unknown(probe: Probe) -> None:
    """SGLang 0.5.14 raises before it computes the bytes of a token."""
    done = probe("explain", DATA / "lowfrac", "--tokens", "400,000")

    assert "the bytes of a token are not known" in done.stdout


@pytest.mark.parametrize("tokens", ["many", "-1", "1.5", ""])
def test_tokens_that_are_no_number_are_said_to_be_none(probe: Probe, tokens: str) -> None:
    done = probe("explain", DATA / "car", f"--tokens={tokens}")

    assert done.returncode == 2
    assert f"{tokens!r} is no number of tokens" in done.stderr


def test_a_path_that_is_not_there_is_one_line(probe: Probe, tmp_path: Path) -> None:
    done = probe("explain", tmp_path / "nothing")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nothing" in done.stderr


def test_events_of_a_newer_major_schema_are_refused_in_one_line(probe: Probe, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    lines = (
        sorted((DATA / "car").glob("*.jsonl"))[1]
        .read_text(encoding="utf-8")
        .replace('"schema":"1.0"', '"schema":"2.0"')
    )
    file.write_text(lines, encoding="utf-8")

    done = probe("explain", file)

    assert "2.0" in done.stderr
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_events_of_a_newer_minor_schema_are_read(probe: Probe, tmp_path: Path) -> None:
    for file in (DATA / "lowfrac").glob("*.jsonl"):
        text = file.read_text(encoding="utf-8").replace('"schema":"1.0"', '"schema":"1.9"')
        (tmp_path / file.name).write_text(text, encoding="utf-8")

    assert "weights exceed the static budget" in probe("explain", tmp_path).stdout
