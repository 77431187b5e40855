"""Recordings of real GPU runs, replayed: what the probe says is what SGLang's own log of the same run says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sglang_probe.events.jsonschema import event_schema

DATA = Path(__file__).resolve().parents[1] / "data" / "h200-x2-sglang-0.5.14"
GIB = 1 << 30
READY = ("car", "nocar")


def timeline(run: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "sglang_probe", "timeline", str(DATA / run), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["runs"]
    return dict(found)


def log(run: str) -> str:
    return (DATA / f"{run}.log").read_text()


def ranks(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [process for process in run["processes"] if process["role"] == "scheduler"]


def step(process: dict[str, Any], phase: str) -> dict[str, Any]:
    return next(step for step in process["steps"] if step["phase"] == phase)


def printed(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    assert match, pattern
    return float(match[1])


@pytest.mark.parametrize("run", ["car", "nocar", "lowfrac"])
def test_every_recorded_line_satisfies_the_schema(run: str) -> None:
    validator = Draft202012Validator(event_schema())
    lines = [line for file in (DATA / run).iterdir() for line in file.read_text().splitlines()]
    assert lines
    assert [error.message for line in lines for error in validator.iter_errors(json.loads(line))] == []


@pytest.mark.parametrize("run", READY)
def test_a_ready_run_is_ready_on_every_rank_and_its_budget_is_verified(run: str) -> None:
    told = timeline(run)
    assert told["outcome"] == "ready"
    assert [process["label"] for process in ranks(told)] == ["TP0", "TP1"]
    assert [process["workers"][0]["budget"]["verified"] for process in ranks(told)] == [True, True]


@pytest.mark.parametrize("run", READY)
def test_tokens_weights_graphs_and_pools_are_those_of_sglangs_log(run: str) -> None:
    process, text = ranks(timeline(run))[0], log(run)
    kv = process["workers"][0]["kv"]
    assert kv["tokens"] == printed(r"max_total_num_tokens=(\d+)", text)
    assert kv["limited_by"] == "memory"
    weights = -step(process, "weights.load")["delta_bytes"]
    assert f"{weights / GIB:.2f}" == f"{printed(r'Load weight end.*?mem usage=([0-9.]+) GB', text):.2f}"
    pool = next(pool["bytes"] for pool in kv["pools"] if pool["kind"] == "MHA")
    k_and_v = printed(r"K size: ([0-9.]+) GB", text) + printed(r"V size: ([0-9.]+) GB", text)
    assert pool / GIB == pytest.approx(k_and_v, abs=0.01)  # two figures of two decimals
    free = step(process, "scheduler.init")["free_bytes"]
    assert f"{free / GIB:.2f}" == f"{printed(r'available_gpu_mem=([0-9.]+) GB', text):.2f}"


def test_what_the_custom_all_reduce_costs_is_a_step_of_its_own_and_a_number_of_tokens() -> None:
    with_it, without = (ranks(timeline(run))[0] for run in READY)
    cost = -step(with_it, "allreduce.buffers")["delta_bytes"]
    assert "allreduce.buffers" not in {step["phase"] for step in without["steps"]}
    budgets = [process["workers"][0]["budget"]["pre_load_bytes"] for process in (with_it, without)]
    assert cost == pytest.approx(budgets[1] - budgets[0], abs=2 * 1024 * 1024)  # the driver allocates in pages of 2 MiB
    tokens = [process["workers"][0]["kv"]["tokens"] for process in (with_it, without)]
    assert tokens[0] < tokens[1]


def test_a_refused_run_failed_in_the_profile_and_agrees_with_sglangs_minimum() -> None:
    told = timeline("lowfrac")
    assert (told["outcome"], told["failed_phase"]) == ("failed", "kv.profile")
    for process in ranks(told):
        budget = process["workers"][0]["budget"]
        minimum = printed(r"minimum viable = 1 - available/pre = ([0-9.]+)\)", log("lowfrac"))
        assert f"{budget['minimum_viable_fraction']:.4f}" == f"{minimum:.4f}"
        assert budget["rest_bytes"] < 0 and budget["verified"] is True


def test_no_process_but_the_schedulers_has_a_device() -> None:
    others = [process for process in timeline("car")["processes"] if process["role"] != "scheduler"]
    assert {process["role"] for process in others} == {"launcher", "detokenizer"}
    assert all(process["device"] is None or process["device"]["index"] is None for process in others)


def test_the_nvml_process_list_names_the_schedulers_alone() -> None:
    files = {file: [json.loads(line) for line in file.read_text().splitlines()] for file in (DATA / "car").iterdir()}
    schedulers = {events[-1]["pid"] for events in files.values() if events[-1]["proc"]["role"] == "scheduler"}
    listed = {
        process["pid"]
        for events in files.values()
        for event in events
        for process in (event["after"] or {}).get("nvml_processes") or []
    }
    assert listed == schedulers
