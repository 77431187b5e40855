"""Reports among the events that they were made of are told to be ours: no run, no log, no torn event comes of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
RECORDED = Path(__file__).parents[1] / "data" / "h200-x2-sglang-0.5.14"
FAILED = RECORDED / "lowfrac"
PRINTED = (
    ("timeline",),
    ("timeline", "--plain"),
    ("timeline", "--format", "json"),
    ("explain",),
    ("explain", "--plain"),
    ("explain", "--format", "json"),
    ("plan", "--format", "json"),
    ("plan",),
    ("watch", "--plain"),
    ("watch", "--format", "json"),
)
WRITTEN = ("report.html", "report.json", "report.trace.json", "report.prom", "report.svg")


def told(probe: Probe, *paths: Path) -> tuple[list[tuple[str, str, str]], dict[str, int], list[str]]:
    """Runs (id, outcome, source), the losses by kind, and those of them that say that something is gone."""
    read = json.loads(probe("timeline", *paths, "--format", "json").stdout)
    runs = [(run["run_id"], run["outcome"], run["source"]) for run in read["runs"]]
    losses = read["read"]["losses"]
    return runs, {loss["kind"]: loss["count"] for loss in losses}, [loss["kind"] for loss in losses if loss["lost"]]


def test_nothing_that_is_printed_or_written_into_a_run_s_directory_becomes_a_run_of_its_own(
    probe: Probe, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(FAILED, tmp_path / "lowfrac"))
    before = told(probe, run)
    printed = {f"{position}.txt": probe(*words, FAILED).stdout for position, words in enumerate(PRINTED)}
    printed["diff.txt"] = probe("diff", RECORDED / "car", FAILED).stdout
    printed["diff.json"] = probe("diff", RECORDED / "car", FAILED, "--format", "json").stdout
    assert all(printed.values())
    assert probe("report", FAILED, *(word for name in WRITTEN for word in ("-o", name))).returncode == 0
    for name, text in printed.items():
        (run / name).write_text(text)
    for name in WRITTEN:
        shutil.move(tmp_path / name, run / name)

    runs, kinds, lost = told(probe, run)

    assert (runs, lost) == (before[0], before[2])
    assert kinds["own_report"] >= len(printed)
    assert kinds["own_report"] + kinds.get("foreign_file", 0) == len(printed) + len(WRITTEN)


@pytest.mark.parametrize("name", ["x.html", "x.json"])
def test_a_report_that_is_given_as_input_is_refused_with_what_to_give(probe: Probe, tmp_path: Path, name: str) -> None:
    probe("report", FAILED, "-o", name)

    refused = probe("explain", name)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{name} is a report that sglang-probe wrote" in refused.stderr and "run directory" in refused.stderr
