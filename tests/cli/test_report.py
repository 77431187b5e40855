"""`sglang-probe report`: what is written where, and what is refused before anything long is done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.report.formats import FORMATS, format_of

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
WriteRun = Callable[..., Path]


@pytest.fixture
def night(write_run: WriteRun, tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "night-1")


def test_each_ending_writes_its_kind_of_file(probe: Probe, night: Path, tmp_path: Path) -> None:
    names = [f"out{one.ending}" for one in FORMATS]

    made = probe("report", night, *(word for name in names for word in ("-o", name)))

    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [f"out{one.ending}: {one.what}" for one in FORMATS]
    for one in FORMATS:
        path = tmp_path / f"out{one.ending}"
        assert path.is_dir() == one.is_directory
        assert path.is_dir() or path.stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "runs"])


def test_the_json_report_is_what_timeline_and_explain_print(probe: Probe, night: Path, tmp_path: Path) -> None:
    probe("report", night, "-o", "out.json")

    document = json.loads((tmp_path / "out.json").read_text())
    assert document["schema"] == "report/1.0"
    assert document["timeline"] == json.loads(probe("timeline", night, "--format", "json").stdout)
    assert document["explain"] == json.loads(probe("explain", night, "--format", "json").stdout)


def test_the_longest_ending_that_fits_decides_whatever_its_case() -> None:
    found = {name: form.ending for name in ("a.trace.json", "a.JSON", "b.Html") if (form := format_of(name))}

    assert found == {"a.trace.json": ".trace.json", "a.JSON": ".json", "b.Html": ".html"}


@pytest.mark.parametrize("name", ["report", "report.pdf", "html", ""])
def test_an_ending_that_says_nothing_is_refused_with_those_that_do(probe: Probe, night: Path, name: str) -> None:
    refused = probe("report", night, "-o", name)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert repr(name) in refused.stderr and all(one.ending in refused.stderr for one in FORMATS)
    assert refused.stderr.count("\n") == 1


def test_a_file_that_is_there_is_replaced_whole(probe: Probe, night: Path, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("yesterday's")

    assert probe("report", night, "-o", "out.json").returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == "report/1.0"


def test_a_directory_of_tables_is_replaced_and_one_that_holds_more_is_not(
    probe: Probe, night: Path, tmp_path: Path
) -> None:
    assert probe("report", night, "-o", "out.parquet").returncode == 0
    before = sorted(path.name for path in (tmp_path / "out.parquet").iterdir())
    assert probe("report", night, "-o", "out.parquet").returncode == 0
    assert before == sorted(path.name for path in (tmp_path / "out.parquet").iterdir())

    (tmp_path / "out.parquet" / "thesis.txt").write_text("mine")
    refused = probe("report", night, "-o", "out.parquet")

    assert refused.returncode == 2 and "holds more than tables" in refused.stderr
    assert (tmp_path / "out.parquet" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere/out.json", "no directory; make it"),
        ("runs.json", "is a directory"),
        ("file.parquet", "is a file"),
        (f"{'x' * 300}.json", "File name too long"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line_and_leaves_nothing(
    probe: Probe, night: Path, tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "runs.json").mkdir()
    (tmp_path / "file.parquet").write_text("")
    before = sorted(tmp_path.iterdir())

    refused = probe("report", night, "-o", name)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert says in refused.stderr and refused.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("ending", [one.ending for one in FORMATS if one.ending != ".json"])
def test_what_a_format_needs_and_is_not_installed_is_named_before_anything_is_read(
    probe: Probe, tmp_path: Path, ending: str
) -> None:
    needed = ("duckdb", "matplotlib", "plotly", "plotly.offline", "prometheus_client", "pyarrow", "pyarrow.parquet")
    refused = probe("report", "no-such-run", "-o", f"out{ending}", without=needed)

    assert refused.returncode == 2
    if ending == ".trace.json":  # which needs nothing more
        assert "no-such-run" in refused.stderr
    else:
        assert "is missing; " in refused.stderr and "pip install" in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("file", ["part-0.parquet", "about.parquet/part-0.parquet"])
def test_a_data_set_of_somebodys_is_not_replaced(probe: Probe, night: Path, tmp_path: Path, file: str) -> None:
    theirs = tmp_path / "out.parquet" / file
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")

    refused = probe("report", night, "-o", "out.parquet")

    assert refused.returncode == 2 and "holds more than tables" in refused.stderr
    assert theirs.read_text() == "theirs"
