"""A file of a run named by itself: what its other files hold is not called missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_probe.collect import read
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run
from tests.collect.building import Writer
from tests.collect.starting import Shape, launch, write
from tests.timeline.making import Alive, gone, unknowable


def told(*paths: Path, alive: Alive = unknowable) -> Run:
    (run,) = build(read(list(paths)), alive=alive).runs
    return run


@pytest.fixture
def writers() -> list[Writer]:
    return launch([Shape(), Shape()])


@pytest.mark.parametrize("alive", [unknowable, gone])
def test_one_file_of_a_run_says_that_the_others_were_not_given(
    tmp_path: Path, writers: list[Writer], alive: Alive
) -> None:
    directory = write(tmp_path, writers)

    run = told(directory / writers[0].file_name, alive=alive)

    assert (2, "unknown", "only 1 of the run's 3 files was given") == (
        run.unread_files, run.outcome, run.outcome_reason
    )  # fmt: skip
    assert (True, ()) == (run.health.ok, run.health.says)


def test_a_rank_given_without_the_others_is_no_failure_of_the_probe(tmp_path: Path, writers: list[Writer]) -> None:
    directory = write(tmp_path, writers)

    run = told(*(directory / writer.file_name for writer in writers[1:2]))

    assert 2 == run.unread_files
    assert run.health.ok


def test_a_directory_is_given_with_all_its_files(tmp_path: Path, writers: list[Writer]) -> None:
    directory = write(tmp_path, writers)
    (directory / "node-a.1.1.jsonl").touch()  # created, and nothing was written to it

    assert 0 == told(directory).unread_files


def test_a_launcher_alone_in_its_directory_hooked_nothing(tmp_path: Path, writers: list[Writer]) -> None:
    del writers[0].events[2:]
    directory = write(tmp_path, writers[:1])

    run = told(directory)

    assert 0 == run.unread_files
    assert "no memory role was hooked" in run.health.says[0]


def test_a_start_without_a_rank_is_no_failure_of_the_probe(tmp_path: Path, writers: list[Writer]) -> None:
    del writers[0].events[2:]

    run = told(write(tmp_path, writers[:1]), alive=lambda _: True)

    assert ("starting", True) == (run.outcome, run.health.ok)
