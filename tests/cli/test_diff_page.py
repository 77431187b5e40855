"""`diff -o FILE`: the comparison as a page or as JSON, and what is said where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Probe

PAIR = [Path(__file__).parents[1] / "data" / "h200-x2-sglang-0.5.14" / name for name in ("nocar", "car")]


def test_a_comparison_is_written_as_a_page(probe: Probe, tmp_path: Path) -> None:
    done = probe("diff", *PAIR, "-o", tmp_path / "report.html")

    assert (0, "") == (done.returncode, done.stderr)
    assert f"{tmp_path / 'report.html'}: the runs side by side, the differences first\n" == done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "<title>nocar -&gt; car - SGLang Probe</title>" in page


def test_a_comparison_is_written_as_json_as_it_is_printed(probe: Probe, tmp_path: Path) -> None:
    probe("diff", *PAIR, "-o", tmp_path / "report.json")

    assert (tmp_path / "report.json").read_text() == probe("diff", *PAIR, "--format", "json").stdout
    assert "diff/1.0" == json.loads((tmp_path / "report.json").read_text())["schema"]


@pytest.mark.parametrize("name", ["report.pdf", "report"])
def test_an_ending_that_is_no_report_of_a_comparison_is_refused(probe: Probe, tmp_path: Path, name: str) -> None:
    done = probe("diff", *PAIR, "-o", name)

    assert 2 == done.returncode
    said = f"-o '{name}' has no ending that says what to write; end it in .html or .json"
    assert f"sglang-probe diff: {said}\n" == done.stderr
    assert not (tmp_path / name).exists()


def test_without_plotly_one_line_says_what_to_install(probe: Probe, tmp_path: Path) -> None:
    done = probe("diff", *PAIR, "-o", "report.html", without=["plotly"])

    assert 2 == done.returncode
    assert "plotly is missing" in done.stderr
    assert [] == list(tmp_path.iterdir())
