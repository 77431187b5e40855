"""What stops the probe does not stop a real server, and is said once, where a person will find it."""

from __future__ import annotations

import pytest

from lanes.runs import Served

pytestmark = [pytest.mark.lane, pytest.mark.parametrize("version", ["0.5.9", "0.5.14"])]


def test_a_server_whose_directory_of_runs_cannot_be_written_serves_and_says_it_once(
    version: str, served: Served
) -> None:
    run = served(version, 2, "unwritable")
    assert served(version, 2, "bare").answers == run.answers
    (said,) = run.said()
    assert str(run.directory) in said
    assert "SGLANG_PROBE_DIR" in said


def test_a_server_whose_environment_has_no_wrapt_serves_and_says_it_once(version: str, served: Served) -> None:
    run = served(version, 2, "without wrapt")
    assert served(version, 2, "bare").answers == run.answers
    (said,) = run.said()
    assert "wrapt" in said
    assert "pip install" in said
    assert [] == run.files
