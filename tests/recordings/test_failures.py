"""Failures that were made on two H200, replayed: how each ended, what the report says of it, and SGLang's own log."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema import Draft202012Validator

from sglang_probe.events.jsonschema import event_schema
from tests.recordings.replay import (
    DATA,
    GIB,
    MIB,
    RUNS,
    events,
    figures,
    log,
    neighbours,
    rank,
    ranks,
    report,
    scenario,
    step,
    timeline,
)

ENDINGS = {
    "car": ("ready", None, None, "READY after"),
    "leftover": ("ready", None, None, "READY after"),
    "sigkill": ("died", "graph.capture", "TP1", "DIED in graph.capture: TP1 is gone"),
    "oom-capture": ("failed", "graph.capture", "TP0", "FAILED in graph.capture on TP0"),
    "poisoned": ("failed", "attention.init", "TP0", "FAILED in attention.init on TP0"),
    "tenant": ("failed", "dist.init", "TP0", "FAILED in dist.init on TP0"),
    "oom-weights": ("failed", "weights.load", "TP1", "FAILED in weights.load on TP1"),
}
"""Run -> outcome, failed phase, who failed or died first, how the printed report begins."""
FAILED = sorted(run for run, (outcome, *_) in ENDINGS.items() if outcome != "ready")
LINES = {
    r"Load weight begin\. avail mem=([0-9.]+) GB": ("weights.load", "free_before_bytes"),
    r"Load weight end\..*avail mem=([0-9.]+) GB": ("weights.load", "free_bytes"),
    r"Memory pool end\. avail mem=([0-9.]+) GB": ("kv.pool all", "free_bytes"),
    r"Capture target decode CUDA graph begin\..*avail mem=([0-9.]+) GB": ("graph.capture decode", "free_before_bytes"),
    r"Capture target decode CUDA graph end\..*avail mem=([0-9.]+) GB": ("graph.capture decode", "free_bytes"),
}
"""A line of SGLang's log -> the step and which of its figures the line prints."""


def test_each_recording_is_one_that_is_replayed_here() -> None:
    assert set(RUNS) == set(ENDINGS)


@pytest.mark.parametrize("run", RUNS)
def test_every_recorded_line_satisfies_the_schema(run: str) -> None:
    validator = Draft202012Validator(event_schema())
    lines = [line for file in (DATA / run).iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines
    assert [error.message for line in lines for error in validator.iter_errors(json.loads(line))] == []


@pytest.mark.parametrize("run", RUNS)
def test_a_run_ended_as_it_was_made_to_end_and_the_report_begins_with_it(run: str) -> None:
    outcome, phase, first, words = ENDINGS[run]
    told = timeline(run)
    assert (told["outcome"], told["failed_phase"], told["failed_label"]) == (outcome, phase, first)
    assert report(run).startswith(f"run {run} outcome {words}")
    assert (outcome == "ready") is ("max_total_num_tokens=" in log(run))


@pytest.mark.parametrize("run", RUNS)
def test_no_event_is_lost_and_every_memory_role_is_hooked(run: str) -> None:
    health = timeline(run)["health"]
    assert (health["ok"], health["absent_roles"], health["failed_targets"]) == (True, [], [])
    assert (health["lost_events"], health["dropped_events"]) == (0, 0)
    assert "every line was a whole event" in report(run)


@pytest.mark.parametrize("run", FAILED)
def test_the_error_that_is_reported_is_the_one_that_sglang_logged(run: str) -> None:
    failure = timeline(run)["failure"]
    said = failure["message"].splitlines()[0]
    assert f"{failure['type']}: {said}" in log(run)
    assert re.sub(r"\s+", " ", said) in report(run)


@pytest.mark.parametrize("run", RUNS)
def test_what_was_free_at_each_step_is_what_sglang_printed_there(run: str) -> None:
    seen = 0
    for process in ranks(run):
        steps = {" ".join(filter(None, (one["phase"], one["detail"]))): one for one in process["steps"]}
        steps["weights.load"] = next((one for one in process["steps"] if one["phase"] == "weights.load"), None)
        for pattern, (name, figure) in LINES.items():
            for printed in re.findall(rf"{process['label']}\] {pattern}", log(run)):
                assert f"{steps[name][figure] / GIB:.2f}" == printed, (name, figure)
                seen += 1
    assert seen or run == "tenant"  # it failed before SGLang printed the first of them


@pytest.mark.parametrize("run", RUNS)
def test_what_the_distributed_init_took_beside_the_context_is_what_sglang_printed(run: str) -> None:
    told = {}
    for process in ranks(run):
        names = ("world_group", "communicators", "custom_allreduce", "other")
        way = process["pre_load"]
        told[process["label"]] = way and f"{sum(way[f'{name}_bytes'] or 0 for name in names) / GIB:.2f}"
    printed = dict(re.findall(r"(TP\d)\] Init torch distributed ends.*mem usage=([0-9.]+) GB", log(run)))
    assert printed == {label: cost for label, cost in told.items() if cost is not None}
    assert len(printed) == (1 if run == "tenant" else 2)  # there TP0's raised


@pytest.mark.parametrize("run", RUNS)
def test_the_tokens_are_those_that_sglang_allocated_and_the_budget_is_verified(run: str) -> None:
    for process in ranks(run):
        allocated = re.findall(rf"{process['label']}\] KV Cache is allocated.*#tokens: (\d+),", log(run))
        workers = [worker for worker in process["workers"] if worker["kv"] is not None]
        assert [str(worker["kv"]["tokens"]) for worker in workers] == allocated
        assert {worker["kv"]["limited_by"] for worker in workers} <= {"memory"}
        assert {worker["budget"]["verified"] for worker in workers} <= {True}
    assert bool(allocated) is (run not in ("tenant", "oom-weights"))  # they failed before it


def test_the_killed_rank_is_the_one_that_died_and_its_peer_only_reports_it() -> None:
    told = timeline("sigkill")
    killed = next(process for process in ranks("sigkill") if process["pid"] == scenario("sigkill")["killed"]["pid"])
    died = [one["phase"] for one in killed["steps"] if one["state"] == "died"]
    assert died == ["scheduler.init", "graph.capture", "graph.capture"]
    assert told["lost_peer"] is True
    assert told["outcome_reason"].startswith(f"{killed['label']} is gone")
    (peer,) = [process for process in ranks("sigkill") if process is not killed]
    assert step(peer, "graph.capture")["state"] == "error"
    assert events("sigkill", killed)[-1]["kind"] == "begin"  # its last line is whole, and nothing came after it


@pytest.mark.parametrize("run", ["oom-capture", "poisoned", "tenant", "oom-weights"])
def test_the_other_rank_is_interrupted_and_not_blamed(run: str) -> None:
    first = timeline(run)["failed_label"]
    assert timeline(run)["lost_peer"] is False
    (other,) = [process for process in ranks(run) if process["label"] != first]
    states = {one["state"] for one in other["steps"]}
    assert states == {"ok", "interrupted"}
    assert f"interrupted in {[one for one in other['steps'] if one['state'] != 'ok'][-1]['phase']}" in report(run)


@pytest.mark.parametrize("run", ["oom-capture", "oom-weights"])
def test_the_figures_of_an_out_of_memory_error_are_those_that_the_probe_read(run: str) -> None:
    process = rank(run, timeline(run)["failed_label"])
    said = timeline(run)["failure"]["message"]
    error = next(event for event in events(run, process) if event["kind"] == "error")  # the innermost
    after, ledger = error["after"], step(process, error["role"])["ledger"]
    (free,) = figures(r"of which ([0-9.]+) MiB is free", said)
    (total,) = figures(r"total capacity of ([0-9.]+) GiB", said)
    allocated, cached = figures(r"([0-9.]+) GiB is allocated by PyTorch, and ([0-9.]+) MiB is reserved", said)
    (mine,) = figures(r"this process has ([0-9.]+) GiB memory in use", said)
    (asked,) = figures(r"Tried to allocate ([0-9.]+) MiB", said)
    listed = {one["pid"]: one["bytes"] for one in after["nvml_processes"]}
    assert f"{ledger['free'] / MIB:.2f}" == f"{after['device_free_bytes'] / MIB:.2f}" == f"{free:.2f}"
    assert f"{after['device_total_bytes'] / GIB:.2f}" == f"{total:.2f}"
    assert f"{after['torch_allocated_bytes'] / GIB:.2f}" == f"{allocated:.2f}"
    assert f"{ledger['torch_cached'] / MIB:.2f}" == f"{cached:.2f}"
    assert f"{listed[process['pid']] / GIB:.2f}" == f"{mine:.2f}"
    assert asked * MIB > max(ledger["free"], ledger["torch_cached"])
    others = {pid: float(gib) for pid, gib in re.findall(r"Process (\d+) has ([0-9.]+) GiB", said)}
    assert others == {str(one["pid"]): round(one["bytes"] / GIB, 2) for one in neighbours(process)}


def test_a_lost_context_leaves_nvmls_readings_in_the_error_event_and_cudas_null() -> None:
    process = rank("poisoned", "TP0")
    errors = [event for event in events("poisoned", process) if event["kind"] == "error"]
    assert [event["role"] for event in errors] == ["attention.init", "scheduler.init"]
    assert errors[0]["exception"]["type"] == "torch.AcceleratorError"
    for event in errors:
        after = event["after"]
        assert after["device_total_bytes"] is after["device_free_bytes"] is None
        parts = [after[f"nvml_{part}_bytes"] for part in ("used", "free", "reserved")]
        assert sum(parts) == after["nvml_total_bytes"]
        assert [one["pid"] for one in after["nvml_processes"]] == [process["pid"]]
        assert {(one["source"], one["reason"]) for one in event["degraded"]} == {
            ("torch_capture", "read_failed"),
            ("torch", "not_asked"),
        }
    attention = step(process, "attention.init")
    assert (attention["free_bytes"], attention["delta_bytes"]) == (None, None)
    assert "device-side assert triggered" in attention["null_reason"]
    assert attention["ledger"]["free"] == errors[0]["after"]["nvml_free_bytes"]


def test_the_unbalanced_memory_that_sglang_complains_of_is_what_the_ranks_had_free() -> None:
    said = timeline("tenant")["failure"]["message"]
    (least,) = figures(r"pre_model_load_memory=([0-9.]+),", said)
    (own,) = figures(r"local_gpu_memory=([0-9.]+),", said)
    assert rank("tenant", "TP1")["pre_load"]["pre_load_bytes"] == least * GIB
    assert step(rank("tenant", "TP0"), "dist.init")["free_bytes"] == own * GIB
