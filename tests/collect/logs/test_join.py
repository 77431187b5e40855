"""Starts in several texts, or by several writers of one, are one server's where that shows, and apart where it does
not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sglang_probe.collect import Collected, InputError, read
from tests.collect.logs.telling import BATCH, DRAFT, READY, TOTALS, Teller, kinds
from tests.collect.reading import losses_of


def _written(directory: Path, **files: list[str]) -> list[Path]:
    paths = []
    for name, lines in files.items():
        path = directory / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines))
        paths.append(path)
    return paths


def _names(collected: Collected) -> list[str]:
    return [run.name for run in collected.logs]


def _node(rank: int, *, hours: float = 0, address: str = "10.0.0.1:5000", carrier: str = "") -> list[str]:
    teller = Teller(hours, [f"TP{2 * rank}", f"TP{2 * rank + 1}"], carrier)
    lines = [
        *teller.arguments(dist_init_addr=address, nnodes=2, node_rank=rank, tp_size=4),
        *teller.group(seconds=10),
    ]
    return lines + (teller.totals() if rank == 0 else [])


def test_two_logs_of_two_servers_are_two_runs_in_the_order_given(tmp_path: Path) -> None:
    paths = _written(tmp_path, b__log=Teller().start(), a__log=Teller().start())

    assert ["b.log", "a.log"] == _names(read(paths))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_logs_of_the_nodes_of_one_server_are_one_run(tmp_path: Path, order: tuple[int, int]) -> None:
    paths = _written(tmp_path, one__log=_node(0), two__log=_node(1))

    (run,) = read([paths[place] for place in order]).logs

    assert "one.log" == run.name
    assert tuple(map(str, paths)) == run.files
    assert {"TP0", "TP1", "TP2", "TP3"} <= {fact.label for fact in run.facts}
    assert 1 == sum("two.log" in note or "one.log" in note for note in run.notes)


def test_nodes_of_another_address_are_of_another_server(tmp_path: Path) -> None:
    paths = _written(tmp_path, one__log=_node(0), two__log=_node(1, address="10.0.0.9:5000"))

    assert ["one.log", "two.log"] == _names(read(paths))


def test_each_start_of_a_server_of_two_nodes_has_both(tmp_path: Path) -> None:
    one, two = ([*_node(rank), *_node(rank, hours=5)] for rank in (0, 1))

    runs = read(_written(tmp_path, one__log=one, two__log=two)).logs

    assert ["one.log", "one.log#2"] == [run.name for run in runs]
    assert [2, 2] == [len(run.files) for run in runs]


@pytest.mark.parametrize("older", ["server.log.1", "server.log.2.gz", "server-20300101.log", "server.1.log"])
def test_a_rotated_log_goes_on_in_the_next_file(tmp_path: Path, older: str) -> None:
    teller = Teller()
    (tmp_path / older.removesuffix(".gz")).write_text("".join(teller.start()))
    (tmp_path / "server.log").write_text(teller.line(BATCH, "TP0", seconds=4000))

    for paths in (["server.log", older.removesuffix(".gz")], [older.removesuffix(".gz"), "server.log"]):
        (run,) = read([tmp_path / path for path in paths]).logs

        assert ("batch", 2) == (kinds(run)[-1], len(run.files))
        assert "it goes on in server.log" in run.notes


def test_a_log_that_was_rotated_twice_is_one_run(tmp_path: Path) -> None:
    teller = Teller()
    _written(
        tmp_path,
        server__log__2=teller.start(),
        server__log__1=[teller.line(BATCH, "TP0", seconds=4000)],
        server__log=[teller.line(BATCH, "TP0", seconds=4000)],
    )

    (run,) = read([tmp_path]).logs

    assert ["server.log.2", "server.log.1", "server.log"] == [Path(file).name for file in run.files]


def test_a_log_from_the_middle_beside_one_of_another_name_is_not_its_end(tmp_path: Path) -> None:
    teller = Teller()
    paths = _written(tmp_path, a__log=teller.start(), b__log=[teller.line(BATCH, "TP0")])

    assert ["a.log", "b.log"] == _names(read(paths))


def test_two_services_of_compose_are_told_apart_by_who_wrote_each_line(tmp_path: Path) -> None:
    one, other = Teller(carrier="prefill-1  | "), Teller(carrier="decode-1   | ")
    both = [line for pair in zip(one.start(), other.start(port=30001), strict=True) for line in pair]

    collected = read(_written(tmp_path, all__log=both))

    assert ["prefill-1", "decode-1"] == _names(collected)
    assert kinds(collected.logs[0]) == kinds(collected.logs[1])
    assert [("prefill-1",), ("decode-1",)] == [run.sources for run in collected.logs]
    assert any("all.log holds 2 starts" in note for note in collected.logs[0].notes)


def test_one_start_of_several_can_be_named(tmp_path: Path) -> None:
    teller = Teller()
    _written(tmp_path, server__log=[*teller.start(), *teller.start(), *teller.start()])

    assert ["server.log#2"] == _names(read([f"{tmp_path}/server.log#2"]))
    assert ["server.log"] == _names(read([f"{tmp_path}/server.log#1"]))
    collected = read([f"{tmp_path}/server.log#1", f"{tmp_path}/server.log#3"])
    assert ["server.log", "server.log#3"] == _names(collected)
    assert {} == losses_of(collected)


def test_one_service_of_several_can_be_named(tmp_path: Path) -> None:
    one, other = Teller(carrier="prefill-1  | "), Teller(carrier="decode-1   | ")
    _written(tmp_path, all__log=[*one.start(), *other.start()])

    assert ["decode-1"] == _names(read([f"{tmp_path}/all.log#decode-1"]))


def test_a_start_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    teller = Teller()
    _written(tmp_path, server__log=[*teller.start(), *teller.start()])

    with pytest.raises(InputError, match=r"server.log has no start 3: it holds server.log, server.log#2; name one"):
        read([f"{tmp_path}/server.log#3"])


def test_of_a_directory_of_logs_the_newest_start_is_returned(tmp_path: Path) -> None:
    _written(tmp_path, a__log=Teller(hours=5).start(), b__log=Teller().start(), c__log=Teller(hours=3).start())
    (tmp_path / "notes.txt").write_text("nothing of a server\n")

    collected = read([tmp_path])

    assert ["a.log"] == _names(collected)
    assert 2 == collected.report.other_runs
    assert ("c.log", "b.log") == collected.report.beside
    assert {"foreign_file": 1} == losses_of(collected)
    assert ["a.log", "b.log", "c.log"] == _names(read([tmp_path], all_runs=True))


def test_of_a_directory_of_logs_both_nodes_of_the_newest_start_are_read(tmp_path: Path) -> None:
    _written(tmp_path, old__log=Teller().start(), one__log=_node(0, hours=5), two__log=_node(1, hours=5))

    (run,) = read([tmp_path]).logs

    assert ["one.log", "two.log"] == [Path(file).name for file in run.files]


def test_files_of_one_name_in_two_directories_are_named_with_them(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text("".join(Teller().start()))

    collected = read([tmp_path / "monday" / "server.log", tmp_path / "tuesday" / "server.log"])

    assert ["monday/server.log", "tuesday/server.log"] == _names(collected)


def test_a_draft_s_lines_in_a_node_of_their_own_times_are_no_reason_to_cut(tmp_path: Path) -> None:
    teller = Teller()
    lines = [*teller.arguments(speculative_algorithm="EAGLE3"), *teller.group()]
    teller.now += timedelta(minutes=10)
    lines += [*teller.group(DRAFT), *teller.totals()]

    assert ["server.log"] == _names(read(_written(tmp_path, server__log=lines)))


def test_ranks_that_are_actors_of_ray_are_one_server_with_its_launcher(tmp_path: Path) -> None:
    teller = Teller()
    lines = teller.arguments()
    for line in [*teller.group(seconds=12), teller.line(TOTALS, "TP0")]:
        rank = int("TP1" in line)
        lines.append(f"(SchedulerActor pid={100 + rank}, ip=10.0.0.{1 + rank}) {line}")
    lines.append(teller.line(READY))

    (run,) = read(_written(tmp_path, driver__log=lines)).logs

    assert ("driver.log", 1) == (run.name, run.starts)
    assert {"TP0", "TP1"} == {fact.label for fact in run.facts} - {None}
    assert [fact.entry.line for fact in run.facts] == sorted(fact.entry.line for fact in run.facts)


def test_each_start_of_two_nodes_in_one_text_has_both(tmp_path: Path) -> None:
    one, two = ([*_node(rank), *_node(rank, hours=5)] for rank in (0, 1))
    half, other = len(one) // 2, len(two) // 2
    lines = [*one[:half], *two[:other], *two[other:], *one[half:]]

    runs = read(_written(tmp_path, all__log=lines)).logs

    assert ["all.log", "all.log#2"] == [run.name for run in runs]
    assert all({"TP0", "TP1", "TP2", "TP3"} <= {fact.label for fact in run.facts} for run in runs)


def test_what_another_service_wrote_is_left_out_and_said(tmp_path: Path) -> None:
    lines = Teller(carrier="sglang-1  | ").start()
    trouble = ("Traceback (most recent call last):", '  File "/app/x.py", line 1, in f', "ValueError: bad")
    lines += [f"nginx-1   | {line}\n" for line in trouble]

    (run,) = read(_written(tmp_path, all__log=lines)).logs

    assert "exception" not in kinds(run)
    assert "what nginx-1 wrote in all.log is no server's and is left out" in run.notes
