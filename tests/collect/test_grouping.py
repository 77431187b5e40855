"""Which processes are one launch: by process tree, by the world they met in, and by time; a run id is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sglang_probe.collect import Collected, read
from tests.collect.building import SECOND, Host, Writer
from tests.collect.starting import Shape, launch, rank, rank_of, write


def _read(tmp_path: Path, writers: Sequence[Writer]) -> Collected:
    for writer in writers:
        write(tmp_path, [writer])
    return read([tmp_path], all_runs=True)


def _pids(collected: Collected) -> list[list[int]]:
    return [sorted(member.process.key.pid for member in run.members) for run in collected.runs]


def _alone(host: Host, pid: int, run_id: str, world: int, size: int, method: str, **shape: str) -> Writer:
    """A rank that nobody of ours started, as under torchrun."""
    writer = Writer(replace(host), pid, run_id, start_ticks=host.ticks)
    writer.start()
    writer.rank = rank_of(world, size)
    return rank(writer, Shape(**shape), method)  # type: ignore[arg-type]  # only texts are given here


def test_a_server_is_one_launch(tmp_path: Path) -> None:
    writers = launch([Shape(), Shape()])

    assert [sorted(writer.pid for writer in writers)] == _pids(_read(tmp_path, writers))


def test_ranks_of_torchrun_are_one_run_though_each_has_an_id(tmp_path: Path) -> None:
    host = Host()
    writers = [_alone(host, 50 + world, f"own-{world}", world, 4, "tcp://127.0.0.1:29500") for world in range(4)]

    collected = _read(tmp_path, writers)

    assert [[50, 51, 52, 53]] == _pids(collected)
    assert ("own-0", "own-1", "own-2", "own-3") == collected.runs[0].run_ids


def test_hosts_that_met_in_one_world_are_one_run(tmp_path: Path) -> None:
    a, b = Host("node-a", "boot-a"), Host("node-b", "boot-b", now=900 * SECOND)
    b.ahead_ns = -800 * SECOND + SECOND  # its boot is older; its wall clock is a second ahead
    writers = [_alone(host, 60, host.name, world, 2, "tcp://10.0.0.1:5000") for world, host in enumerate((a, b))]

    assert 1 == len(_read(tmp_path, writers).runs)


@pytest.mark.parametrize("method", ["tcp://127.0.0.1:5000", "tcp://localhost:5000", "tcp://[::1]:5000", "env://"])
def test_a_local_address_joins_only_within_one_boot(tmp_path: Path, method: str) -> None:
    a, b = Host("node-a", "boot-a"), Host("node-b", "boot-b")
    writers = [_alone(host, 60, f"id-{host.name}", world, 2, method) for world, host in enumerate((a, b))]

    assert 2 == len(_read(tmp_path, writers).runs)


def test_containers_on_one_boot_meet_at_a_local_address(tmp_path: Path) -> None:
    a, b = Host("container-a", "boot-a"), Host("container-b", "boot-a")
    writers = [_alone(host, 1, host.name, world, 2, "tcp://127.0.0.1:5000") for world, host in enumerate((a, b))]

    assert 1 == len(_read(tmp_path, writers).runs)


def test_another_world_size_at_the_same_address_is_another_run(tmp_path: Path) -> None:
    host = Host()
    writers = [_alone(host, 60 + size, f"id-{size}", 0, size, "tcp://10.0.0.1:5000") for size in (1, 2)]

    assert 2 == len(_read(tmp_path, writers).runs)


def test_the_same_address_at_another_time_is_another_run(tmp_path: Path) -> None:
    host = Host()
    first = _alone(host, 60, "id-0", 0, 2, "tcp://10.0.0.1:5000")
    host.tick(600 * SECOND)
    second = _alone(host, 61, "id-1", 1, 2, "tcp://10.0.0.1:5000")

    assert [[60], [61]] == _pids(_read(tmp_path, [first, second]))


def test_a_restart_at_the_same_address_is_told_by_its_ranks(tmp_path: Path) -> None:
    a, b = Host("node-a", "boot-a"), Host("node-b", "boot-b")
    writers = []
    for start in (1, 2):
        writers += [
            _alone(host, 60 + start, f"id-{host.name}-{start}", world, 2, "tcp://10.0.0.1:5000")
            for world, host in enumerate((a, b))
        ]
        for host in (a, b):
            host.tick(SECOND)  # within the slack that is given to the clocks of two hosts

    assert [[61, 61], [62, 62]] == _pids(_read(tmp_path, writers))


def test_a_run_id_that_was_started_twice_is_two_launches(tmp_path: Path) -> None:
    host = Host()
    first = launch([Shape(), Shape()], host, run_id="mine", first_pid=100)
    host.tick(SECOND)
    second = launch([Shape(), Shape()], host, run_id="mine", first_pid=200)

    collected = _read(tmp_path, [*first, *second])

    assert [("mine", 0), ("mine", 1)] == [(run.run_id, run.launch) for run in collected.runs]
    assert [[100, 110, 111], [200, 210, 211]] == _pids(collected)


def test_two_servers_at_once_with_one_run_id_are_two_launches(tmp_path: Path) -> None:
    host = Host()
    first = launch([Shape(), Shape()], replace(host), run_id="mine", first_pid=100, method="tcp://127.0.0.1:1")
    second = launch([Shape(), Shape()], replace(host), run_id="mine", first_pid=200, method="tcp://127.0.0.1:2")

    assert [[100, 110, 111], [200, 210, 211]] == _pids(_read(tmp_path, [*first, *second]))


def test_two_launchers_that_failed_before_any_rank_are_two_launches(tmp_path: Path) -> None:
    host = Host()
    writers = [Writer(replace(host), pid, "mine", start_ticks=pid, role="launcher") for pid in (100, 200)]
    for writer in writers:
        writer.start()

    assert [[100], [200]] == _pids(_read(tmp_path, writers))


def test_one_process_that_starts_two_servers_in_turn_is_in_both_launches(tmp_path: Path) -> None:
    host = Host()
    launcher, *first = launch([Shape(), Shape()], host, run_id="mine", first_pid=100)
    host.tick(SECOND)
    _, *second = launch([Shape(), Shape()], host, run_id="mine", first_pid=200)
    for writer in second:
        for event in writer.events:
            event["proc"] = event["proc"] | {"parent": launcher.pid}

    assert [[100, 110, 111], [100, 210, 211]] == _pids(_read(tmp_path, [launcher, *first, *second]))


def test_ranks_whose_launcher_left_no_file_stay_together(tmp_path: Path) -> None:
    _, *ranks = launch([Shape(), Shape()])

    assert 1 == len(_read(tmp_path, ranks).runs)


def test_a_rank_that_died_before_it_knew_its_world_stays_with_its_launcher(tmp_path: Path) -> None:
    writers = launch([Shape(), Shape()])
    del writers[2].events[5:]

    assert 1 == len(_read(tmp_path, writers).runs)


def test_replicas_with_worlds_of_their_own_are_one_launch_under_one_launcher(tmp_path: Path) -> None:
    host = Host()
    launcher, *first = launch([Shape(), Shape()], replace(host), first_pid=100, method="tcp://127.0.0.1:1")
    _, *second = launch([Shape(), Shape()], replace(host), first_pid=200, method="tcp://127.0.0.1:2")
    for replica, writers in enumerate((first, second)):
        for writer in writers:
            for event in writer.events:
                event["proc"] = event["proc"] | {"parent": launcher.pid}
                if event["rank"] is not None:
                    event["rank"] = event["rank"] | {"dp": {"rank": replica, "size": 2}}

    assert 1 == len(_read(tmp_path, [launcher, *first, *second]).runs)


def test_processes_stand_in_the_order_in_which_they_started(tmp_path: Path) -> None:
    writers = launch([Shape(), Shape(), Shape()])

    (run,) = _read(tmp_path, list(reversed(writers))).runs

    assert [writer.pid for writer in writers] == [member.process.key.pid for member in run.members]


def _forked(parent: Writer, pid: int, events: slice) -> Writer:
    """A process forked by a rank inside a hooked call: it carries on as if it were its parent."""
    child = replace(parent, pid=pid, start_ticks=(parent.start_ticks or 0) + 1, events=[])
    for seq, event in enumerate(parent.events[events]):
        proc = event["proc"] | {"parent": parent.pid, "start_ticks": child.start_ticks}
        child.events.append(event | {"pid": pid, "proc": proc, "seq": seq})
    return child


def _after(writer: Writer, event: str) -> slice:
    names_of_events = [one["event"] for one in writer.events]
    return slice(names_of_events.index(event), None)


@pytest.mark.parametrize("first", ["sglang.memory.weights.load.end", "sglang.memory.scheduler.init.begin"])
def test_a_forked_child_that_goes_on_as_its_rank_is_no_rank_and_no_launch_of_its_own(
    tmp_path: Path, first: str
) -> None:
    launcher, rank = launch([Shape()])
    child = _forked(rank, 99, _after(rank, first))

    (run,) = _read(tmp_path, [launcher, rank, child]).runs

    assert {launcher.pid: False, rank.pid: True, child.pid: False} == {
        member.process.key.pid: member.is_rank for member in run.members
    }
    assert [child.pid] == [member.process.key.pid for member in run.members if member.is_fork]


def test_a_forked_child_that_ran_after_its_rank_is_of_the_same_launch(tmp_path: Path) -> None:
    launcher, rank = launch([Shape()])
    child = _forked(rank, 99, slice(-1, None))
    for event in child.events:
        event["mono_ns"] += 60 * SECOND

    assert 1 == len(_read(tmp_path, [launcher, rank, child]).runs)


def test_a_rank_that_another_rank_starts_is_a_rank(tmp_path: Path) -> None:
    launcher, first, second = launch([Shape(), Shape()])
    for event in second.events:
        event["proc"] = event["proc"] | {"parent": first.pid}

    (run,) = _read(tmp_path, [launcher, first, second]).runs

    assert 2 == sum(member.is_rank for member in run.members)


def _on_two_hosts(
    apart: int, run_ids: tuple[str, str], method: str, shapes: tuple[dict[str, str], ...]
) -> list[Writer]:
    hosts = Host("node-a", "boot-a"), Host("node-b", "boot-b", ahead_ns=apart)
    return [
        _alone(host, 60, run_id, world, 2, method, **shape)
        for world, (host, run_id, shape) in enumerate(zip(hosts, run_ids, shapes, strict=True))
    ]


@pytest.mark.parametrize("apart", [40 * SECOND, -40 * SECOND, 86_400 * SECOND])
def test_hosts_that_met_under_one_run_id_are_one_run_however_far_their_clocks_are_apart(
    tmp_path: Path, apart: int
) -> None:
    writers = _on_two_hosts(apart, ("job", "job"), "tcp://10.0.0.1:5000", ({}, {}))

    (run,) = _read(tmp_path, writers).runs

    assert [apart] == [tie.ahead for tie in run.skews]


@pytest.mark.parametrize(
    ("run_ids", "method", "shapes"),
    [
        (("one", "other"), "tcp://10.0.0.1:5000", ({}, {})),
        (("job", "job"), "tcp://127.0.0.1:5000", ({}, {})),
        (("job", "job"), "tcp://10.0.0.1:5000", ({"stop_in": "dist.init"}, {})),
    ],
    ids=["run id", "loopback", "one of them never got out of dist.init"],
)
def test_clocks_that_far_apart_join_no_hosts_that_need_not_have_met(
    tmp_path: Path, run_ids: tuple[str, str], method: str, shapes: tuple[dict[str, str], ...]
) -> None:
    assert 2 == len(_read(tmp_path, _on_two_hosts(60 * SECOND, run_ids, method, shapes)).runs)


def test_restarts_under_one_run_id_are_paired_in_their_order_whatever_the_clocks(tmp_path: Path) -> None:
    a, b = Host("node-a", "boot-a"), Host("node-b", "boot-b", ahead_ns=86_400 * SECOND)
    writers = []
    for start in (1, 2):
        writers += [
            _alone(host, 60 + start, "job", world, 2, "tcp://10.0.0.1:5000") for world, host in enumerate((a, b))
        ]
        for host in (a, b):
            host.tick(100 * SECOND)

    assert [[61, 61], [62, 62]] == _pids(_read(tmp_path, writers))
