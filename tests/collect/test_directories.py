"""A run directory, and the directory of runs, of which the newest is meant."""

from __future__ import annotations

from pathlib import Path

from sglang_probe.collect import list_runs, read
from sglang_probe.collect.files import SEARCHED_BYTES
from tests.collect.building import SECOND, Host, Writer
from tests.collect.reading import loss_of, losses_of
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


def _rankless(directory: Path, host: Host, run_id: str, pid: int) -> Path:
    """A process that was no server: it asked for the help, or imported a module."""
    host.tick(60 * SECOND)
    writer = Writer(host, pid, run_id=run_id, role="launcher", start_ticks=host.ticks)
    writer.start(run_maker=True)
    writer.target("scheduler.init")
    return write(directory, [writer])


def test_newer_runs_without_a_rank_are_passed_over_and_named(tmp_path: Path) -> None:
    host = Host()
    write(tmp_path, launch([Shape()], host, run_id="server", first_pid=10))
    for number in range(2):
        _rankless(tmp_path, host, f"help-{number}", 100 + number)

    collected = read([tmp_path])

    assert ["server"] == [run.run_id for run in collected.runs]
    assert {"rankless_run": 2} == losses_of(collected)
    assert {"help-0", "help-1"} == {Path(place.file).name for place in loss_of(collected, "rankless_run").examples}
    assert not loss_of(collected, "rankless_run").lost
    assert ["help-1"] == [run.run_id for run in read([tmp_path / "help-1"]).runs]
    assert 3 == len(read([tmp_path], all_runs=True).runs)


def test_an_older_run_without_a_rank_is_not_worth_a_word(tmp_path: Path) -> None:
    host = Host()
    _rankless(tmp_path, host, "help", 100)
    host.tick(3600 * SECOND)
    write(tmp_path, launch([Shape()], host, run_id="server", first_pid=10))

    collected = read([tmp_path])

    assert ["server"] == [run.run_id for run in collected.runs]
    assert {} == losses_of(collected)


def test_where_no_run_has_a_rank_the_newest_is_read(tmp_path: Path) -> None:
    host = Host()
    for number in range(2):
        _rankless(tmp_path, host, f"help-{number}", 100 + number)

    collected = read([tmp_path])

    assert ["help-1"] == [run.run_id for run in collected.runs]
    assert {} == losses_of(collected)


def test_a_start_that_failed_in_its_first_rank_is_the_newest(tmp_path: Path) -> None:
    host = Host()
    write(tmp_path, launch([Shape()], host, run_id="server", first_pid=10))
    host.tick(60 * SECOND)
    failed = Writer(host, 50, run_id="failed", start_ticks=host.ticks)
    failed.start()
    failed.begin("scheduler.init")
    write(tmp_path, [failed])

    assert ["failed"] == [run.run_id for run in read([tmp_path]).runs]


def test_a_rank_is_found_where_a_pipeline_has_written_the_events_anew(tmp_path: Path) -> None:
    _, newer = _two_runs(tmp_path)
    for file in newer.iterdir():
        file.write_bytes(file.read_bytes().replace(b'":', b'" : '))

    assert ["newer"] == [run.run_id for run in read([tmp_path]).runs]


def test_a_large_file_is_not_searched_to_its_end(tmp_path: Path) -> None:
    host = Host()
    write(tmp_path, launch([Shape()], host, run_id="server", first_pid=10))
    run = _rankless(tmp_path, host, "help", 100)
    (file,) = run.iterdir()
    rank = b"".join(launch([Shape()], host, run_id="help", first_pid=200)[1].lines())
    file.write_bytes(file.read_bytes() + b"\n" * SEARCHED_BYTES + rank)

    assert {"rankless_run": 1} == losses_of(read([tmp_path]))


def test_of_a_run_id_used_again_without_a_rank_the_server_is_meant(tmp_path: Path) -> None:
    host = Host()
    write(tmp_path, launch([Shape()], host, run_id="mine", first_pid=10))
    _rankless(tmp_path, host, "mine", 100)

    collected = read([tmp_path])

    assert [0] == [run.launch for run in collected.runs]
    assert {"rankless_run": 1} == losses_of(collected)
