"""A run directory, and the directory of runs, of which the newest is meant."""

from __future__ import annotations

from pathlib import Path

from sglang_probe.collect import list_runs, read
from tests.collect.building import SECOND, Host
from tests.collect.starting import Shape, launch, write


def _two_runs(directory: Path) -> tuple[Path, Path]:
    host = Host()
    older = write(directory, launch([Shape()], host, run_id="older", first_pid=10))
    host.tick(3600 * SECOND)
    newer = write(directory, launch([Shape()], host, run_id="newer", first_pid=20))
    return older, newer


def test_of_a_directory_of_runs_the_newest_is_read(tmp_path: Path) -> None:
    _two_runs(tmp_path)

    collected = read([tmp_path])

    assert ["newer"] == [run.run_id for run in collected.runs]
    assert 1 == collected.report.other_runs


def test_all_runs_of_a_directory_can_be_read(tmp_path: Path) -> None:
    _two_runs(tmp_path)

    collected = read([tmp_path], all_runs=True)

    assert ["older", "newer"] == [run.run_id for run in collected.runs]
    assert 0 == collected.report.other_runs


def test_the_newest_is_told_by_content_not_by_name_or_file_time(tmp_path: Path) -> None:
    older, newer = _two_runs(tmp_path)
    older.rename(tmp_path / "zzz")
    for file in (tmp_path / "zzz").iterdir():
        file.touch()

    assert ["newer"] == [run.run_id for run in read([tmp_path]).runs]
    assert [newer.name, "zzz"] == [entry.path.name for entry in list_runs(tmp_path)]


def test_a_run_directory_is_read_whatever_its_age(tmp_path: Path) -> None:
    older, _ = _two_runs(tmp_path)

    assert ["older"] == [run.run_id for run in read([older]).runs]


def test_ranks_with_run_ids_of_their_own_come_with_the_newest_run(tmp_path: Path) -> None:
    _, first, second = launch([Shape(), Shape()])
    first.parent = second.parent = 1
    for writer, run_id in ((first, "torchrun-0"), (second, "torchrun-1")):
        for event in writer.events:
            event["run_id"] = run_id
            event["proc"] = event["proc"] | {"parent": 1}
        writer.run_id = run_id
        write(tmp_path, [writer])

    (run,) = read([tmp_path]).runs

    assert ("torchrun-0", "torchrun-1") == run.run_ids
    assert 2 == len(run.members)


def test_of_a_run_id_that_was_started_twice_the_directory_of_runs_means_the_last(tmp_path: Path) -> None:
    host = Host()
    write(tmp_path, launch([Shape()], host, run_id="mine", first_pid=10))
    host.tick(60 * SECOND)
    run = write(tmp_path, launch([Shape()], host, run_id="mine", first_pid=20))

    assert [1] == [found.launch for found in read([tmp_path]).runs]
    assert [0, 1] == [found.launch for found in read([run]).runs]
