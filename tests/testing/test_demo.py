"""`sglang-probe demo` replays the story and shows it as `explain` or `timeline` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.testing import RELEASES
from sglang_probe.testing.story import AVAILABLE_MINIMUM, PRE_LOAD_MINIMUM, RANKS


@pytest.fixture
def demo(root: Path, tmp_path: Path) -> Any:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sglang_probe", "demo", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.parametrize("release", RELEASES)
def test_it_fails_as_in_the_story_and_says_so(demo: Any, release: str) -> None:
    done = demo("--release", release, "--show", "timeline", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "failed to start" in done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert ("failed", "kv.profile") == (run["outcome"], run["failed_phase"])
    ranks = [process for process in run["processes"] if process["role"] == "scheduler"]
    assert [f"TP{rank}" for rank in range(RANKS)] == [process["label"] for process in ranks]
    budgets = [process["workers"][0]["budget"] for process in ranks if process["workers"]]
    known = [budget for budget in budgets if budget["available_bytes"] is not None]
    assert known
    assert {(PRE_LOAD_MINIMUM, AVAILABLE_MINIMUM)} == {(one["pre_load_bytes"], one["available_bytes"]) for one in known}


def test_a_larger_fraction_starts(demo: Any) -> None:
    done = demo("--mem-fraction-static", "0.80", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "ready" == json.loads(done.stdout)["runs"][0]["outcome"]


def test_it_explains_the_failure_and_the_failure_is_no_error_of_its_own(demo: Any) -> None:
    done = demo()
    assert done.returncode == 0, done.stderr
    assert "CAUSE: weights exceed the static budget" in done.stdout


def test_it_prints_a_timeline_for_a_person(demo: Any) -> None:
    done = demo("--show", "timeline", "--disable-custom-all-reduce")
    assert done.returncode == 0, done.stderr
    assert "FAILED in kv.profile" in done.stdout
    assert "allreduce.buffers" not in done.stdout


def test_what_is_kept_can_be_read_again(demo: Any, tmp_path: Path) -> None:
    first = demo("--keep", "kept", "--format", "json")
    assert first.returncode == 0, first.stderr
    assert "Not enough memory" in (tmp_path / "kept" / "server.log").read_text()
    again = demo("--keep", "kept")
    assert again.returncode == 2
    assert again.stderr == (
        "sglang-probe demo: --keep 'kept' is there and not an empty directory; name a new one\n"
    )


def test_nothing_is_left_behind_and_the_callers_own_settings_do_not_matter(demo: Any, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    done = demo(
        "--format",
        "json",
        TMPDIR=str(tmp_path / "tmp"),
        SGLANG_PROBE="0",
        SGLANG_PROBE_RUN_ID="mine",
        SGLANG_PROBE_PYTHON="another",
        SGLANG_PROBE_DIR=str(tmp_path / "mine"),
        CUDA_VISIBLE_DEVICES="7",
        SGLANG_DP_RANK="3",
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert "mine" != run["run_id"]
    assert "failed" == run["outcome"]
    assert {"tmp"} == {path.name for path in tmp_path.iterdir()}
    assert [] == list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("value", ["0", "1.5", "much"])
def test_a_fraction_that_is_none_is_refused_in_one_line(demo: Any, value: str) -> None:
    done = demo("--mem-fraction-static", value)
    assert done.returncode == 2
    assert f"'{value}' is not a fraction between 0 and 1" in done.stderr
    assert 1 == len(done.stderr.splitlines())
