"""The ledger of the recorded failures: it closes at every step, and who else holds memory is named with its pid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sglang_probe.timeline.ledger_rows import KEYS
from tests.recordings.replay import (
    GIB,
    MIB,
    RUNS,
    Json,
    events,
    neighbours,
    rank,
    ranks,
    readings,
    report,
    scenario,
    step,
)

LIMIT = 64 << 20
"""Bytes that may stay unexplained."""
CAPTURED = [run for run in RUNS if run not in ("tenant", "oom-weights")]
"""A rank of each came to its graphs."""
PAGE = 2 << 20
"""In such pages the driver gives memory."""


def in_use_before(run: str, process: Json) -> int:
    """Return what the device had in use before this process took anything, less what its list names."""
    first = readings(run, process)[0]
    listed = sum(one["bytes"] for one in first["nvml_processes"])
    return int(first["nvml_used_bytes"] - listed)


def ended(told: Sequence[Json], role: str) -> Json:
    """Return the one event with which a role ended well."""
    (event,) = [one for one in told if (one["role"], one["kind"]) == (role, "end")]
    return event


@pytest.mark.parametrize("run", RUNS)
def test_every_step_of_every_rank_sums_to_nvmls_total_with_every_row_known(run: str) -> None:
    for process in ranks(run):
        (total,) = {reading["nvml_total_bytes"] for reading in readings(run, process)}
        for one in process["steps"]:
            assert tuple(one["ledger"]) == KEYS
            assert sum(one["ledger"].values()) == total == one["ledger_total_bytes"]
            assert (one["ledger_total_source"], one["ledger_reasons"]) == ("nvml_total_bytes", {})


@pytest.mark.parametrize("run", RUNS)
def test_what_is_unexplained_is_what_was_in_use_before_and_named_by_no_list(run: str) -> None:
    for process in ranks(run):
        assert {one["ledger"]["unexplained"] for one in process["steps"]} == {in_use_before(run, process)}
        assert 0 <= in_use_before(run, process) < LIMIT


@pytest.mark.parametrize("run", RUNS)
def test_a_step_that_never_ended_has_the_ledger_of_the_last_reading_before_it(run: str) -> None:
    for process in ranks(run):
        last = [one for one in readings(run, process) if one["nvml_free_bytes"] is not None][-1]
        for one in process["steps"]:
            assert (one["ledger_as_of"] == "last_known") is (one["state"] in ("died", "interrupted"))
            if one["ledger_as_of"] == "last_known":
                assert one["ledger"]["free"] == last["nvml_free_bytes"]


@pytest.mark.parametrize("run", RUNS)
def test_nobody_is_foreign_but_who_was_put_there(run: str) -> None:
    put = {one["gpu"]: one["pid"] for one in scenario(run).get("tenants", [])}
    for process in ranks(run):
        index, named = process["device"]["index"], {one["pid"]: one["kind"] for one in neighbours(process)}
        if run == "leftover":
            assert set(named) < set(scenario(run)["orphans"])
        else:
            assert set(named) == ({put[index]} if index in put else set())
        assert set(named.values()) <= {"foreign"}
        foreign = sum(one["bytes"] for one in neighbours(process))
        assert {(one["ledger"]["foreign"], one["ledger"]["run_processes"]) for one in process["steps"]} == {
            (foreign, 0)
        }


@pytest.mark.parametrize("run", ["tenant", "oom-weights"])
def test_a_tenant_holds_what_it_took_and_a_context(run: str) -> None:
    for told in scenario(run)["tenants"]:
        process = rank(run, f"TP{told['gpu']}")
        (one,) = neighbours(process)
        context = process["pre_load"]["context_bytes"]
        assert abs(one["bytes"] - told["bytes"] - context) < LIMIT  # its context is of another program
        assert (one["gone"], one["bytes"]) == (False, one["peak_bytes"])
        assert f"foreign on this device: pid {told['pid']} {one['name']} {one['bytes'] / GIB:.3f} GiB" in report(run)


def test_a_left_over_scheduler_holds_what_a_ready_one_does_and_nobody_is_its_parent() -> None:
    for process, before in zip(ranks("leftover"), ranks("car"), strict=True):
        (orphan,) = neighbours(process)
        assert orphan["name"] == f"sglang::scheduler_{process['label']}"
        root = ended(events("car", before), "scheduler.init")
        (ready,) = root["after"]["nvml_processes"]
        assert (ready["pid"], ready["bytes"]) == (before["pid"], orphan["bytes"])
        (listed,) = readings("leftover", process)[0]["nvml_processes"]
        assert (listed["pid"], listed["parent"], listed["user"]) == (orphan["pid"], 1, ready["user"])
        assert f"pid {orphan['pid']} {orphan['name']}" in report("leftover")


def test_the_left_over_leaves_the_next_server_what_it_left_free_and_costs_it_nothing_else() -> None:
    for process, before in zip(ranks("leftover"), ranks("car"), strict=True):
        way, first = process["pre_load"], before["pre_load"]
        assert way["idle_free_bytes"] == step(before, "scheduler.init")["free_bytes"]
        names = ("context", "world_group", "communicators", "custom_allreduce", "other")
        assert [way[f"{name}_bytes"] for name in names] == [first[f"{name}_bytes"] for name in names]
        tokens = [one["workers"][0]["kv"]["tokens"] for one in (process, before)]
        assert tokens[0] < tokens[1]


def test_what_is_in_vain_in_the_ledger_of_an_oom_in_capture_is_the_kv_pool() -> None:
    for process, before in zip(ranks("oom-capture"), ranks("car"), strict=True):
        rows = [step(one, "attention.init")["ledger"] for one in (process, before)]
        grown = {row: rows[0][row] - rows[1][row] for row in KEYS if rows[0][row] != rows[1][row]}
        assert set(grown) == {"kv_pool", "torch_cached", "free"}
        assert sum(grown.values()) == 0 < grown["kv_pool"]


def test_a_lost_context_leaves_the_rows_of_the_step_that_lost_it() -> None:
    lost, whole = (step(rank(run, "TP0"), "attention.init")["ledger"] for run in ("poisoned", "car"))
    taken = {row: lost[row] - whole[row] for row in KEYS if lost[row] != whole[row]}
    assert taken == {} or max(map(abs, taken.values())) < LIMIT
    assert sum(taken.values()) == 0


@pytest.mark.parametrize("run", RUNS)
def test_the_custom_all_reduce_takes_what_it_asks_for_in_whole_pages(run: str) -> None:
    for process in ranks(run):
        event = ended(events(run, process), "allreduce.buffers")
        said = event["attributes"]
        assert {one["kind"] for one in said["buffers"]} == {"pull", "push", "signals", "graph_params"}
        assert said["asked_bytes"] == sum(one["bytes"] for one in said["buffers"])
        pages = -(-said["asked_bytes"] // PAGE) * PAGE
        cost, row = (step(process, "allreduce.buffers")[key] for key in ("cost_bytes", "ledger"))
        assert pages == -event["delta"]["device_free_bytes"] == cost == row["custom_allreduce"]


@pytest.mark.parametrize("run", RUNS)
def test_torchs_split_blocks_that_nobody_uses_are_part_of_its_cache_at_every_reading(run: str) -> None:
    read = [one for process in ranks(run) for one in readings(run, process) if one["torch_reserved_bytes"] is not None]
    assert read
    for one in read:
        assert 0 <= one["torch_inactive_split_bytes"] <= one["torch_reserved_bytes"] - one["torch_allocated_bytes"]


@pytest.mark.parametrize("run", CAPTURED)
def test_nothing_is_read_between_the_begin_of_a_capture_and_its_end(run: str) -> None:
    captured = [process for process in ranks(run) if any(one["detail"] == "decode" for one in process["steps"])]
    assert captured
    for process in captured:
        last = step(process, "graph.capture")
        told = [
            one for one in events(run, process) if one["role"] == "graph.capture" and one["span"]["id"] == last["id"]
        ]
        assert last["detail"] == "decode"
        over = told[-1]["seq"] if told[-1]["kind"] != "begin" else math.inf
        within = [one for one in events(run, process) if told[0]["seq"] < one["seq"] < over]
        assert [one["event"] for one in within if one["before"] or one["after"]] == []


def test_a_ready_server_lists_nobody_before_it_and_itself_at_its_end() -> None:
    for process in ranks("car"):
        read = readings("car", process)
        assert read[0]["nvml_processes"] == []
        assert {one["pid"] for reading in read for one in reading["nvml_processes"] or []} == {process["pid"]}
        assert read[0]["nvml_used_bytes"] < 4 * MIB
