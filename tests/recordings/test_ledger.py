"""The ledger on recordings of real GPUs: it closes at every step, and next to nothing is left unexplained."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.timeline.ledger_rows import KEYS

DATA = Path(__file__).resolve().parents[1] / "data" / "h200-x2-sglang-0.5.14"
GIB = 1 << 30
LIMIT = 64 << 20
"""Bytes that may stay unexplained on a healthy run."""
RUNS = ("car", "nocar", "lowfrac")


@cache
def ranks(run: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sglang_probe", "timeline", str(DATA / run), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["runs"]
    return [process for process in found["processes"] if process["role"] == "scheduler"]


def last(process: dict[str, Any]) -> dict[str, Any]:
    """Return the root: it ends last."""
    (root,) = [step for step in process["steps"] if step["phase"] == "scheduler.init"]
    return dict(root)


def events(run: str, process: dict[str, Any]) -> list[dict[str, Any]]:
    (file,) = (DATA / run).glob(f"*.{process['pid']}.*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("run", RUNS)
def test_every_step_of_every_rank_sums_to_nvmls_total_with_little_unexplained(run: str) -> None:
    assert len(ranks(run)) == 2
    for process in ranks(run):
        (total,) = {
            reading["nvml_total_bytes"]
            for event in events(run, process)
            for reading in (event["before"], event["after"])
            if reading is not None
        }
        for step in process["steps"]:
            assert tuple(step["ledger"]) == KEYS
            assert sum(value for value in step["ledger"].values() if value is not None) == total
            assert step["ledger_total_bytes"] == total and step["ledger_total_source"] == "nvml_total_bytes"
            assert abs(step["ledger"]["unexplained"]) < LIMIT, step["phase"]
            assert step["ledger_reasons"] == {}


@pytest.mark.parametrize("run", RUNS)
def test_what_is_unexplained_is_what_the_idle_card_had_in_use(run: str) -> None:
    for process in ranks(run):
        first = next(event["before"] for event in events(run, process) if event["before"] is not None)
        assert {step["ledger"]["unexplained"] for step in process["steps"]} == {first["nvml_used_bytes"]}


@pytest.mark.parametrize("run", ["car", "nocar"])
def test_the_pools_and_weights_are_those_that_the_timeline_names(run: str) -> None:
    for process in ranks(run):
        (worker,) = process["workers"]
        ledger = last(process)["ledger"]
        pools = {pool["kind"]: pool["bytes"] for pool in worker["kv"]["pools"]}
        assert ledger["weights_target"] == worker["weights_torch_bytes"]
        assert 0 <= ledger["kv_pool"] - pools["MHA"] < 64 << 20  # with the allocator's own tensors
        assert 0 <= ledger["request_pool"] - pools["request"] < 1 << 20


@pytest.mark.parametrize("run", RUNS)
def test_the_way_from_the_idle_card_to_the_pre_load_memory_closes_to_the_byte(run: str) -> None:
    for process in ranks(run):
        way = process["pre_load"]
        names = ("context", "world_group", "communicators", "custom_allreduce", "other")
        taken = [way[f"{name}_bytes"] for name in names]
        assert way["idle_free_bytes"] - sum(one for one in taken if one is not None) == way["pre_load_bytes"]
        init = next(step for step in process["steps"] if step["phase"] == "dist.init")
        assert way["pre_load_bytes"] == init["attributes"]["pre_load_bytes"] == init["free_bytes"]
        known = way["driver_reserved_bytes"] + way["unlisted_bytes"] + way["idle_free_bytes"]
        assert (known, None) == (way["nvml_total_bytes"], way["not_separable"])


@pytest.mark.parametrize("run", RUNS)
def test_what_the_distributed_init_took_beside_the_context_is_what_sglangs_log_says(run: str) -> None:
    log = (DATA / f"{run}.log").read_text()
    for process in ranks(run):
        way = process["pre_load"]
        taken = (way[f"{name}_bytes"] or 0 for name in ("world_group", "communicators", "custom_allreduce", "other"))
        printed = re.search(rf"{process['label']}\] Init torch distributed ends.*mem usage=([0-9.]+) GB", log)
        assert printed and printed[1] == f"{sum(taken) / GIB:.2f}"


@pytest.mark.parametrize("run", RUNS)
def test_the_context_is_what_its_coming_took_from_what_was_free(run: str) -> None:
    for process in ranks(run):
        readings = [event["before"] for event in events(run, process) if event["kind"] == "begin"]
        first = next(index for index, one in enumerate(readings) if one["device_free_bytes"] is not None)
        taken = readings[first - 1]["nvml_free_bytes"] - readings[first]["device_free_bytes"]
        assert last(process)["ledger"]["cuda_context"] == process["pre_load"]["context_bytes"] == taken > 0


def test_the_tokens_that_the_custom_all_reduce_costs_are_those_that_the_run_without_it_has_more() -> None:
    for with_it, without in zip(ranks("car"), ranks("nocar"), strict=True):
        tokens = [process["workers"][0]["kv"]["tokens"] for process in (with_it, without)]
        assert with_it["pre_load"]["custom_allreduce_tokens"] == pytest.approx(tokens[1] - tokens[0], abs=1)
        assert without["pre_load"]["custom_allreduce_bytes"] is None
