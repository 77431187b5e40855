"""The values are those of the timeline, and what it does not know is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.many_ranks import write_ranks
from sglang_probe.collect import read
from sglang_probe.report.metrics.ranks import own_seconds
from sglang_probe.timeline import build
from sglang_probe.timeline.ledger_rows import KEYS
from sglang_probe.timeline.model import Device, Ledger, Missing, Neighbour, Process, Timeline
from sglang_probe.timeline.processes import last_ledger, ranks_of
from tests.report.metrics.exposed import exposed, recorded
from tests.report.reported import CAR, HEALTHY_LOG, LEFT_OVER, LOWFRAC, made, reported
from tests.timeline.building import build_rank, build_run, build_step, gib


def test_a_ranks_categories_are_its_ledger_and_sum_to_its_limit() -> None:
    found = recorded(CAR)

    for process in ranks_of(reported(CAR).run):
        rank = process.label or ""
        step = last_ledger(process)
        assert step is not None and step.ledger is not None
        by_category = {key: found.value("sglang_probe_memory_bytes", rank=rank, category=key) for key in KEYS}
        assert {key: getattr(step.ledger, key) for key in KEYS} == by_category
        assert found.value("sglang_probe_memory_limit_bytes", rank=rank) == sum(filter(None, by_category.values()))


def test_a_card_is_told_in_the_words_of_opentelemetry() -> None:
    found = recorded(CAR)

    for process in ranks_of(reported(CAR).run):
        step, device = last_ledger(process), process.device
        assert device is not None and device.uuid is not None and step is not None and step.ledger is not None
        card = {
            "run": "car", "host_name": "gpu-host", "hw_id": device.uuid, "hw_type": "gpu",
            "hw_name": f"GPU {device.index}", "hw_model": "NVIDIA H200", "hw_vendor": "NVIDIA",
            "hw_driver_version": "580.159.04",
        }  # fmt: skip
        limit = found.value("hw_gpu_memory_limit_bytes", **card)
        usage = found.value("hw_gpu_memory_usage_bytes", **card)
        assert limit is not None and usage is not None
        assert (step.ledger_total_bytes, step.ledger.free) == (limit, limit - usage)
        assert usage / limit == found.value("hw_gpu_memory_utilization_ratio", **card)


def test_a_card_of_two_ranks_is_there_once_as_the_later_one_read_it() -> None:
    device = Device(index=0, uuid="GPU-1", name="AMD Instinct MI300X", kind="rocm")

    def rank(position: int, second: int, free: int) -> Process:
        stamp = f"2026-11-29T18:45:{second:02}.000000001Z"
        ledger = Ledger(free=free)
        step = build_step("scheduler.init", 0, 9.0, 8.0, 1.0, ts=stamp, ledger=ledger, ledger_total_bytes=100)
        return build_rank(position, 2, (step,), device=device)

    found = exposed(made(build_run((rank(0, 9, 30), rank(1, 5, 40)), "ready")))

    assert 70 == found.value("hw_gpu_memory_usage_bytes", hw_id="GPU-1", hw_vendor="AMD")


def test_the_phases_of_a_rank_sum_to_how_long_it_took() -> None:
    found = recorded(CAR)

    for process in ranks_of(reported(CAR).run):
        rank = ("rank", process.label or "")
        parts = [value for key, value in found.values["sglang_probe_phase_seconds"].items() if rank in key]
        whole = found.value("sglang_probe_rank_start_seconds", rank=rank[1])
        assert pytest.approx(whole, abs=1e-6) == sum(parts)
        costs = [value for key, value in found.values["sglang_probe_phase_cost_bytes"].items() if rank in key]
        known = [step.self_delta_bytes for step in process.steps if step.self_delta_bytes is not None]
        assert -sum(known) == sum(costs)


def test_a_step_has_of_its_own_what_those_right_inside_it_did_not_take() -> None:
    outer = replace(build_step("kv.pool all", 0, 9.0, 8.0, 3.0), id="a")
    inner = [
        replace(build_step("kv.profile", 1, 9.0, 8.0, took), id=name, parent="a")
        for name, took in (("b", 1.0), ("c", 0.5))
    ]
    deeper = replace(build_step("kv.pool x", 2, 9.0, 8.0, 0.25), id="d", parent="b")

    assert {"a": 1.5, "b": 0.75, "c": 0.5, "d": 0.25} == own_seconds([outer, *inner, deeper])


@pytest.mark.parametrize("took", [None, 4.0], ids=["unknown", "at the same time, in threads"])
def test_of_its_own_is_unknown_where_what_is_inside_is_no_part_of_it(took: float | None) -> None:
    outer = replace(build_step("kv.pool all", 0, 9.0, 8.0, 3.0), id="a")
    inner = replace(build_step("kv.profile", 1, 9.0, 8.0, took), id="b", parent="a")

    assert "a" not in own_seconds([outer, inner])


def test_the_budget_of_a_failed_start_is_there_with_its_terms() -> None:
    found = recorded(LOWFRAC)

    for process in ranks_of(reported(LOWFRAC).run):
        (worker,) = process.workers
        budget = worker.budget
        assert budget is not None and budget.rest_bytes is not None and budget.rest_bytes < 0
        which = {"run": "lowfrac", "rank": process.label or "", "worker": "target"}
        for metric, term in {
            "sglang_probe_budget_pre_load_bytes": budget.pre_load_bytes,
            "sglang_probe_budget_available_bytes": budget.available_bytes,
            "sglang_probe_budget_static_bytes": budget.static_budget_bytes,
            "sglang_probe_budget_slack_bytes": budget.slack_bytes,
            "sglang_probe_budget_rest_bytes": budget.rest_bytes,
            "sglang_probe_mem_fraction_static_ratio": budget.mem_fraction_static,
            "sglang_probe_mem_fraction_static_given_ratio": budget.mem_fraction_static_given,
            "sglang_probe_minimum_viable_fraction_ratio": budget.minimum_viable_fraction,
            "sglang_probe_budget_verified": budget.verified,
        }.items():
            assert term is not None
            assert float(term) == found.value(metric, **which)


def test_a_failed_start_says_where_and_why_and_one_that_is_ready_does_not() -> None:
    found = recorded(LOWFRAC, CAR)

    run = reported(LOWFRAC).run
    assert 1 == found.value("sglang_probe_run_failure_info", run="lowfrac", phase="kv.profile", type="ValueError")
    assert run.failed_label in {dict(key)["rank"] for key in found.values["sglang_probe_run_failure_info"]}
    leading = {"rule": "weights_exceed_budget", "severity": "error", "confidence": "certain"}
    assert 1 == found.value("sglang_probe_leading_finding_info", run="lowfrac", **leading)
    assert found.value("sglang_probe_run_failure_info", run="car") is None
    assert reported(CAR).run.ready_s == found.value("sglang_probe_run_ready_seconds", run="car")
    assert found.value("sglang_probe_run_ready_seconds", run="lowfrac") is None


def test_one_outcome_of_a_run_is_1_and_the_others_are_0() -> None:
    outcomes = recorded(CAR).values["sglang_probe_run_outcome"]

    assert {"ready": 1, "failed": 0, "died": 0, "unknown": 0, "starting": 0} == {
        dict(key)["outcome"]: value for key, value in outcomes.items()
    }


def test_ranks_are_counted_by_state_and_missing_ones_too() -> None:
    steps = (build_step("scheduler.init", 0, 9.0, 8.0, 1.0),)
    gone = (build_step("scheduler.init", 0, 9.0, None, None, state="died"),)
    missing = (Missing(world_rank=3, world_size=4, reason="no file"),)
    ranks = (build_rank(0, 4, steps), build_rank(1, 4, gone), build_rank(2, 4, ()))

    found = exposed(made(build_run(ranks, "died", missing=missing)))

    states = {dict(key)["state"]: value for key, value in found.values["sglang_probe_ranks"].items()}
    expected = {"ok": 1, "died": 1, "none": 1, "missing": 1}
    assert expected == {state: value for state, value in states.items() if value}
    assert {"error", "interrupted", "open"} <= set(states)


def test_a_left_over_of_an_earlier_run_is_told_apart_from_other_tenants() -> None:
    found = recorded(LEFT_OVER)

    for process in ranks_of(reported(LEFT_OVER).run):
        (other,) = process.neighbours
        assert other.left_over
        which = {"run": "leftover", "rank": process.label or ""}
        assert other.bytes == found.value("sglang_probe_foreign_bytes", **which, left_over="true")
        assert 1 == found.value("sglang_probe_foreign_processes", **which, left_over="true")
        assert 0 == found.value("sglang_probe_foreign_processes", **which, left_over="false")


def test_of_many_tenants_no_pid_and_no_name_becomes_a_label() -> None:
    others = tuple(Neighbour(pid=pid, name=f"python{pid}", kind="foreign", bytes=gib(1)) for pid in range(100))
    gone = Neighbour(pid=200, kind="foreign", bytes=gib(1), gone=True)
    step = build_step("scheduler.init", 0, 9.0, 8.0, 1.0, ledger=Ledger(foreign=gib(100)))

    found = exposed(made(build_run((build_rank(0, 1, (step,), neighbours=(*others, gone)),), "ready")))

    assert {"run", "rank", "left_over"} == found.labels["sglang_probe_foreign_bytes"]
    assert gib(100) == found.value("sglang_probe_foreign_bytes", left_over="false")


def test_what_others_hold_is_not_there_where_it_is_not_known() -> None:
    nobody = Neighbour(pid=5, kind="foreign", bytes=None)
    told = build_step("scheduler.init", 0, 9.0, 8.0, 1.0, ledger=Ledger(foreign=gib(1)))
    untold = build_step("scheduler.init", 0, 9.0, 8.0, 1.0, ledger=Ledger(foreign=None))
    ranks = build_rank(0, 2, (told,), neighbours=(nobody,)), build_rank(1, 2, (untold,), neighbours=(nobody,))

    found = exposed(made(build_run(ranks, "ready")))

    assert 1 == found.value("sglang_probe_foreign_processes", rank="TP0", left_over="false")
    assert found.value("sglang_probe_foreign_bytes", rank="TP0", left_over="false") is None
    assert found.value("sglang_probe_foreign_processes", rank="TP1", left_over="false") is None


def test_a_figure_of_a_log_has_how_far_off_it_may_be_beside_it_and_one_of_events_has_not() -> None:
    found = recorded(HEALTHY_LOG, CAR)

    (process, *_) = ranks_of(reported(HEALTHY_LOG).run)
    step = last_ledger(process)
    assert step is not None
    which = {"run": HEALTHY_LOG.name, "rank": "TP0"}
    for key, off in step.ledger_precision_bytes.items():
        assert off == found.value("sglang_probe_memory_precision_bytes", **which, category=key)
    (worker,) = process.workers
    assert worker.budget is not None
    off_ratio = worker.budget.precisions["minimum_viable_fraction"]
    term = {"term": "minimum_viable_fraction", "worker": "target"}
    assert off_ratio == found.value("sglang_probe_budget_precision_ratio", **which, **term)
    assert {HEALTHY_LOG.name} == {
        dict(key)["run"] for name, values in found.values.items() if "_precision_" in name for key in values
    }


def test_what_a_log_does_not_hold_is_counted_by_its_reason_and_never_0() -> None:
    found = recorded(HEALTHY_LOG)

    unknown = {dict(key)["category"]: value for key, value in found.values["sglang_probe_memory_unknown_ranks"].items()}
    assert set(KEYS) - {"free", "weights_target"} == set(unknown)
    assert {8} == set(unknown.values())
    shown = {dict(key)["category"] for key in found.values["sglang_probe_memory_bytes"]}
    assert {"free", "weights_target"} == shown
    assert "sglang_probe_healthy" not in found.values  # no probe was there


def test_a_rank_on_a_cpu_has_what_is_free_and_no_card() -> None:
    device = Device(index=0, kind="cpu", name="cpu", total_bytes=gib(20))
    ledger = Ledger(free=gib(8), unexplained=gib(12))
    step = build_step("scheduler.init", 0, 9.0, 8.0, 1.0, ledger=ledger, ledger_total_bytes=gib(20))

    found = exposed(made(build_run((build_rank(0, 1, (step,), device=device),), "ready")))

    assert [gib(8)] == list(found.values["sglang_probe_memory_bytes"].values())
    assert not [name for name in found.values if name.startswith("hw_gpu")]


def test_a_run_with_all_that_a_budget_may_have_shows_it(ready: Timeline) -> None:
    """A draft, a recurrent deduction, a cap on the tokens."""
    found = exposed(made(*ready.runs))

    for process in ready.runs[0].processes:
        for worker in process.workers:
            name = worker.worker if worker.draft_index is None else f"{worker.worker} {worker.draft_index}"
            for deduction, amount in ((worker.budget and worker.budget.deductions) or {}).items():
                value = found.value("sglang_probe_budget_deduction_bytes", worker=name, deduction=deduction)
                assert amount == value
            assert (worker.kv and worker.kv.tokens) == found.value("sglang_probe_kv_tokens", worker=name)
    assert found.values["sglang_probe_budget_deduction_bytes"]


def test_a_run_that_could_not_be_seen_says_so(killed: Timeline) -> None:
    found = exposed(made(*killed.runs, like=killed))

    health = killed.runs[0].health
    assert 0 == found.value("sglang_probe_healthy")
    assert len(health.failed_targets) == found.value("sglang_probe_failed_hooks")
    assert 0 == found.value("sglang_probe_role_hooked", role="attention.init")
    assert health.degraded[0].count == found.value("sglang_probe_degradations", source="nvml")
    assert 1 == found.value("sglang_probe_read_losses", kind="torn_tail", lost="true")
    assert 5 == found.value("sglang_probe_read_losses", kind="foreign_line", lost="false")


def test_two_runs_of_one_name_and_two_launches_stay_apart() -> None:
    run = reported(CAR).run

    found = exposed(made(run, run, replace(run, launch=1)))

    names = {dict(key)["run"] for key in found.values["sglang_probe_run_info"]}
    assert {"car", "car (2)", "car launch 2"} == names


def test_a_rank_more_adds_no_more_series_than_the_documentation_says(tmp_path: Path) -> None:
    counts = []
    for ranks in (16, 24):  # of several hosts, like those that have many
        write_ranks(tmp_path / str(ranks), ranks)
        found = exposed(made(*build(read([tmp_path / str(ranks)])).runs))
        counts.append(sum(len(values) for values in found.values.values()))

    docs = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert f"a rank of it adds {(counts[1] - counts[0]) // 8} series" in " ".join(docs.split())


@pytest.mark.parametrize("log", sorted(CAR.parent.glob("*.log")), ids=lambda path: path.stem)
def test_a_phase_has_its_cost_though_a_step_inside_it_has_none_of_its_own(log: Path) -> None:
    found = recorded(log)
    whole = {
        process.label: step.cost_bytes
        for process in ranks_of(reported(log).run)
        for step in process.steps
        if step.phase == "kv.pool" and step.depth == 1 and step.cost_bytes is not None
    }

    told = {rank: found.value("sglang_probe_phase_cost_bytes", rank=rank or "", phase="kv.pool") for rank in whole}
    assert told == whole
