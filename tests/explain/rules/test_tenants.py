"""Memory of others is a cause only where it would have made the difference."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sglang_probe.timeline.model import PreLoad
from tests.explain.explaining import failed, of, raising, rank, ready, rules, tenant
from tests.timeline.building import gib

OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB of which 1.00 GiB is free."
)


def test_a_tenant_without_which_the_budget_would_be_positive_is_the_cause_and_leads() -> None:
    poor = rank(1, pre_load=84.0, available=11.7, fraction=0.85, tenants=(tenant(10.0),))
    run = failed(rank(0, pre_load=94.0, available=21.7, fraction=0.85), poor)

    found = of("foreign_tenant", run)

    assert found.severity == "error"
    assert rules(run)[0] == "foreign_tenant"
    assert found.lever is not None
    assert found.lever.enough is True
    assert gib(10.0 * 0.85) == pytest.approx(found.lever.gain_bytes, abs=2)
    assert "pid 114880 python3 (ops, began 2 h 3 min before this start) holds 10.000 GiB of GPU 1" in found.says
    assert "Without it this server would have started" in found.says


def test_a_tenant_without_which_the_budget_would_still_be_negative_is_no_cause() -> None:
    run = failed(rank(0), rank(1, tenants=(tenant(1.0),)))

    found = of("foreign_tenant", run)

    assert found.severity == "warning"
    assert "It is not the cause" in found.says
    assert rules(run)[0] == "weights_exceed_budget"


def test_the_minimum_is_taken_anew_when_one_rank_gets_its_memory_back() -> None:
    poor = rank(1, pre_load=64.0, available=1.0, fraction=0.8, tenants=(tenant(30.0),))
    run = failed(rank(0, pre_load=94.0, available=18.0, fraction=0.8), poor)

    found = of("foreign_tenant", run)

    assert found.severity == "warning"  # with 30 GiB back, the other rank is the poorest and still short
    assert found.lever is not None
    rest = 18.0 - 94.0 * (1 - 0.8)
    assert f"the budget would still be {rest:.3f} GiB" in found.says


def test_a_left_over_is_named_with_pid_age_and_bytes_and_never_ended_by_us() -> None:
    left = tenant(9.0, name="sglang::scheduler_TP1", left_over=True)
    run = failed(rank(0, fraction=0.8), rank(1, pre_load=85.0, available=12.7, fraction=0.8, tenants=(left,)))

    found = of("left_over", run)

    assert found.severity == "error"
    assert found.numbers["processes"][0]["pid"] == 114880
    assert found.lever is not None
    assert "ps -o pid,ppid,user,lstart,cmd -p 114880" in found.lever.says
    assert "we never do" in found.lever.says
    assert "foreign_tenant" not in rules(run)


def test_another_live_server_is_told_from_a_left_over() -> None:
    run = ready(
        rank(0, available=80.0, weights=14.0, fraction=0.9, tenants=(tenant(20.0, name="sglang::scheduler_TP0"),))
    )

    assert "two_servers" in rules(run)
    assert "left_over" not in rules(run)


def test_of_a_ready_run_a_tenant_is_a_warning_with_what_it_cost_in_tokens() -> None:
    run = ready(rank(0, 1, available=80.0, weights=14.0, fraction=0.9, tenants=(tenant(20.0),)))

    found = of("foreign_tenant", run)

    assert found.severity == "warning"
    assert found.lever is not None
    assert gib(20.0 * 0.9) // 70272 == pytest.approx(found.lever.gain_tokens, abs=1)


def test_an_out_of_memory_is_caused_by_a_tenant_that_holds_more_than_was_short() -> None:
    run = raising("graph.capture", OOM)
    held = rank(0, tenants=(tenant(5.0),)).neighbours
    run = replace(run, processes=(replace(run.processes[0], neighbours=held), *run.processes[1:]))

    found = of("foreign_tenant", run)

    assert found.severity == "error"
    assert "Without it the 2.000 GiB that TP0 asked for would have been there" in found.says


@pytest.mark.parametrize("bytes_held", [1 << 20, 0])
def test_a_stranger_of_a_few_mib_is_not_worth_a_line(bytes_held: int) -> None:
    run = ready(rank(0, 1, tenants=(tenant(bytes_held / (1 << 30)),)))

    assert "foreign_tenant" not in rules(run)


def test_memory_in_use_that_no_list_names_points_to_another_container() -> None:
    way = PreLoad(
        nvml_total_bytes=gib(95.6), driver_reserved_bytes=gib(0.6), unlisted_bytes=gib(12.0), pre_load_bytes=gib(82.0)
    )
    process = rank(0, 1, pre_load=82.0, available=10.0, fraction=0.85)
    run = failed(replace(process, pre_load=way))

    found = of("unlisted_memory", run)

    assert "12.000 GiB of TP0's device were in use" in found.says
    assert found.severity == "error"
    assert found.confidence == "likely"
