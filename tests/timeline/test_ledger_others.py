"""Who else is on the device: told by NVML's lists where they can be told, and never invented."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_probe.timeline.ledger_others import INITIAL_NAMESPACE
from tests.collect.building import Host, Raised, Writer
from tests.collect.starting import rank_of
from tests.timeline.cards import MIB, Card, card, last, process_of, rows

TENANT = {"pid": 114880, "start_ticks": 7, "name": "python3", "bytes": 300}


def shares(rank: Card, *others: Writer) -> tuple[int | None, int | None]:
    """Return what the run's others and foreign processes hold at the end, in MiB."""
    found = rows(last(rank, *others))
    run, foreign = found["run_processes"], found["foreign"]
    return None if run is None else run // MIB, None if foreign is None else foreign // MIB


def loaded(**known: Any) -> Card:
    """Return a rank that has loaded its weights."""
    rank = card(**known)
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20)
    return rank


def test_a_tenant_that_was_there_before_is_foreign_from_the_first_step_on() -> None:
    rank = loaded(others=[dict(TENANT)])

    steps = [last(rank, phase=phase) for phase in ("dist.init", "weights.load")]
    assert [300 * MIB] * 2 == [rows(step)["foreign"] for step in steps]
    assert [3 * MIB] * 2 == [rows(step)["unexplained"] for step in steps]


def test_a_process_of_the_same_run_is_none_of_the_foreign_ones() -> None:
    rank, launcher = beside_its_launcher(start_ticks=55)

    assert (300, 0) == shares(rank, launcher)


def beside_its_launcher(start_ticks: int, namespace: str = "pid:[1]") -> tuple[Card, Writer]:
    """Return a rank beside a process with its launcher's pid, which NVML lists with a start time of 55."""
    rank = card(parent=4100, others=[{**TENANT, "pid": 4100, "start_ticks": 55}])
    launcher = Writer(rank.host, 4100, start_ticks=start_ticks, role="launcher")
    launcher.start(pid_namespace=namespace)
    rank.start()
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20)
    return rank, launcher


@pytest.mark.parametrize("differs", [{"start_ticks": 56}, {"start_ticks": 55, "namespace": "pid:[2]"}])
def test_a_pid_that_another_process_had_before_or_elsewhere_is_foreign(differs: dict[str, Any]) -> None:
    rank, launcher = beside_its_launcher(**differs)

    assert (0, 300) == shares(rank, launcher)


def test_a_process_of_the_run_on_another_host_is_not_the_one_that_is_listed_here() -> None:
    said: dict[str, Any] = {"distributed_init_method": "tcp://10.0.0.1:29500", "world_size": 2}
    here, there = (
        Card(host, 4200 + place, role="scheduler", rank=rank_of(place, 2), start_ticks=55)
        for place, host in enumerate((Host(), Host("node-b", "boot-b")))
    )
    here.others = [{**TENANT, "pid": there.pid, "start_ticks": there.start_ticks}]
    for place, rank in enumerate((here, there)):
        rank.start()
        with rank.step("dist.communicator", communicator="ProcessGroup", world_rank=place, **said):
            rank.context = 50
        with rank.step("weights.load"):
            rank.take(torch=20)

    assert (0, 300) == shares(here, there)


@pytest.mark.parametrize("listed_pid", [99, 4300])
def test_in_a_container_whose_pids_are_its_own_no_tenant_is_invented(listed_pid: int) -> None:
    rank = loaded(others=[dict(TENANT)], listed_pid=listed_pid)

    found, reasons = rows(last(rank)), last(rank).ledger_reasons
    assert (None, None, None) == (found["run_processes"], found["foreign"], found["cuda_context"])
    assert {"pid_namespace"} == set(reasons.values())
    assert (20 * MIB, (50 + 300 + 3) * MIB) == (found["weights_target"], found["unexplained"])


def test_rows_that_took_nothing_beside_torch_are_known_without_a_process_list() -> None:
    rank = loaded(lists=False)

    assert {"cuda_context", "run_processes", "foreign"} == set(last(rank).ledger_reasons)
    assert {"no_process_list"} == set(last(rank).ledger_reasons.values())
    assert 53 * MIB == rows(last(rank))["unexplained"]


def test_a_tenant_that_comes_in_between_makes_unknown_what_was_taken_meanwhile() -> None:
    rank = loaded()
    with rank.step("kv.pool", pool="all"):
        rank.take(torch=30)
        rank.others.append(dict(TENANT))
    with rank.step("graph.capture"):
        rank.take(raw=7)

    found, reasons = rows(last(rank)), last(rank).ledger_reasons
    assert {"other_process": "others_moved"} == reasons
    assert (50, 20, 30, 7, 300, 3) == tuple(
        (found[row] or 0) // MIB
        for row in ("cuda_context", "weights_target", "kv_pool", "graphs", "foreign", "unexplained")
    )


def test_a_tenant_that_grows_by_little_is_seen_too() -> None:
    rank = loaded(others=[dict(TENANT)])
    with rank.step("graph.capture"):
        rank.others[0]["bytes"] += 2
        rank.take(raw=7)

    assert "others_moved" == last(rank).ledger_reasons["graphs"]
    assert (302 * MIB, 10 * MIB) == (rows(last(rank))["foreign"], rows(last(rank))["unexplained"])


def test_a_tenant_that_comes_before_the_first_list_is_seen_by_what_this_process_cannot_have_taken() -> None:
    rank = card()
    rank.worker = "target"
    with rank.collective("dist.init"):
        rank.context = 50
        with rank.collective("dist.communicator", group="world"):
            rank.others.append(dict(TENANT))
            rank.take(raw=9)
    with rank.step("weights.load"):
        rank.take(torch=20)

    reasons = last(rank).ledger_reasons
    assert {"cuda_context": "others_moved", "communicator": "others_moved"} == reasons
    assert (300 * MIB, (50 + 9 + 3) * MIB) == (rows(last(rank))["foreign"], rows(last(rank))["unexplained"])


def test_between_lists_that_differ_the_others_are_unknown() -> None:
    rank = loaded()
    with rank.collective("dist.communicator", group="tp:0"):
        rank.others.append(dict(TENANT))
    with rank.step("graph.capture"):
        pass

    assert (None, 300 * MIB) == tuple(
        rows(last(rank, phase=phase))["foreign"] for phase in ("dist.communicator", "graph.capture")
    )
    assert "others_moved" == last(rank, phase="dist.communicator").ledger_reasons["foreign"]


def test_unlisted_memory_that_moves_is_not_this_processs() -> None:
    rank = loaded()
    with rank.step("graph.capture"):
        rank.unlisted += 200

    assert "others_moved" == last(rank).ledger_reasons["graphs"]
    assert 203 * MIB == rows(last(rank))["unexplained"]


def test_a_tenant_is_named_where_this_process_never_came_to_a_context() -> None:
    rank = card(others=[{**TENANT, "bytes": 980}])
    rank.start(pid_namespace=INITIAL_NAMESPACE)
    with pytest.raises(Raised), rank.step("scheduler.init"):
        raise Raised("torch.OutOfMemoryError", "CUDA out of memory")

    assert (0, 980) == shares(rank)


def test_that_tenant_is_not_named_where_pids_may_be_a_containers() -> None:
    rank = card(others=[{**TENANT, "bytes": 980}])
    rank.start(pid_namespace="pid:[4026532000]")
    with pytest.raises(Raised), rank.step("scheduler.init"):
        raise Raised("torch.OutOfMemoryError", "CUDA out of memory")

    assert (None, None) == shares(rank)


def test_where_the_driver_does_not_say_what_processes_hold_the_others_are_unknown() -> None:
    rank = card(others=[dict(TENANT)], change=bytes_unread)
    rank.set_up()
    with rank.step("weights.load"):
        rank.take(torch=20)

    reasons = last(rank).ledger_reasons
    assert {"process_bytes_unread"} == {reasons[row] for row in ("run_processes", "foreign", "cuda_context")}
    assert 353 * MIB == rows(last(rank))["unexplained"]


def bytes_unread(reading: dict[str, Any]) -> dict[str, Any]:
    """Return a reading on WSL."""
    listed = reading["nvml_processes"]
    return reading | {"nvml_processes": None if listed is None else [one | {"bytes": None} for one in listed]}


def test_who_was_on_the_device_is_named_with_what_they_held_at_most() -> None:
    rank = loaded(others=[{**TENANT}, {"pid": 12, "start_ticks": 8, "name": "xmrig", "bytes": 40}])
    rank.others[0]["bytes"] = 200
    del rank.others[1]
    with rank.step("graph.capture"):
        pass

    tenant, other = process_of(rank).neighbours
    assert (114880, 7, "python3", "foreign") == (tenant.pid, tenant.start_ticks, tenant.name, tenant.kind)
    assert (200 * MIB, 300 * MIB, False) == (tenant.bytes, tenant.peak_bytes, tenant.gone)
    assert (12, "xmrig", 40 * MIB, True) == (other.pid, other.name, other.peak_bytes, other.gone)


def test_neighbours_of_the_run_are_told_from_foreign_ones_and_none_is_named_in_a_container() -> None:
    rank, launcher = beside_its_launcher(start_ticks=55)

    assert ["run"] == [one.kind for one in process_of(rank, launcher).neighbours]
    assert () == process_of(loaded(others=[dict(TENANT)], listed_pid=99)).neighbours
