"""Whatever a log looks like, it is read: no crash, no hang, and no number that is not in the text."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.collect.logs.invented import invented_in
from tests.collect.logs.mutations import SEEDS, mutated

SECONDS = 20
"""How long the coverage-guided fuzzer runs in the suite; `docs/testing.md` says how to let it run longer."""


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_number_read_out_of_a_recorded_log_stands_in_it(path: Path) -> None:
    assert invented_in(path.read_bytes()) == []


@given(st.integers(0, 1 << 62))
@settings(max_examples=250, deadline=timedelta(seconds=10), suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_log_is_read_and_explained_without_a_number_that_is_not_in_it(seed: int) -> None:
    assert invented_in(mutated(seed)) == []


@given(st.binary(max_size=3000))
@settings(max_examples=150, deadline=timedelta(seconds=10))
def test_bytes_of_any_kind_are_read(data: bytes) -> None:
    assert invented_in(data) == []


def test_a_coverage_guided_fuzzer_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="no wheel of atheris for this Python")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, path in enumerate(SEEDS):
        (corpus / f"{number}.log").write_bytes(path.read_bytes()[:16384])
    command = [
        sys.executable, "-m", "tests.collect.logs.fuzzer", str(corpus), f"-max_total_time={SECONDS}", "-max_len=16384",
        f"-artifact_prefix={tmp_path}/", "-timeout=20", "-rss_limit_mb=4096",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS * 15)
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert done.returncode == 0, done.stderr[-4000:]
    assert runs is not None and int(runs[1]) > 0, done.stderr[-2000:]


def test_the_search_for_invented_numbers_would_find_one() -> None:
    """The check above can fail."""
    from tests.collect.logs.invented import not_in_text

    assert not_in_text(b"avail mem=21.73 GB", ["21.73"]) == []
    assert not_in_text(b"avail mem=21.73 GB", ["21.74"]) == ["21.74"]
