"""What `explain` says of starts on real GPUs: the cause that was made on purpose, in the figures of SGLang's log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.recordings.replay import DATA, GIB, MIB, figures, log, rank, scenario, step

LOWFRAC = DATA.with_name("h200-x2-sglang-0.5.14") / "lowfrac"
CAUSES = {
    "car": [],
    "leftover": [],
    "oom-capture": ["graphs"],
    "oom-weights": ["foreign_tenant", "out_of_memory"],
    "poisoned": ["not_memory"],
    "sigkill": ["not_memory"],
    "tenant": ["foreign_tenant"],
}


@cache
def explained(path: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sglang_probe", "explain", path, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    (run,) = json.loads(done.stdout)["runs"]
    assert done.returncode == any(one["severity"] == "error" for one in run["findings"])
    return list(run["findings"])


def finding(run: str, rule: str) -> dict[str, Any]:
    (found,) = [one for one in explained(str(DATA / run)) if one["rule"] == rule]
    return found


@pytest.mark.parametrize("run", CAUSES)
def test_the_causes_are_those_that_were_made_on_purpose(run: str) -> None:
    assert CAUSES[run] == [one["rule"] for one in explained(str(DATA / run)) if one["severity"] == "error"]


def test_the_capture_was_short_by_what_sglang_s_log_says() -> None:
    wanted, free = figures(r"Tried to allocate ([\d.]+) MiB.*?of which ([\d.]+) MiB is free", log("oom-capture"))

    numbers = finding("oom-capture", "graphs")["numbers"]
    assert round(wanted * MIB) - round(free * MIB) == numbers["short_by_bytes"]
    read = step(rank("oom-capture", "TP0"), "graph.capture")["free_bytes"]
    assert read == pytest.approx(numbers["free_said_bytes"], abs=MIB // 100)


def test_the_fraction_it_names_for_the_capture_leaves_what_was_short() -> None:
    found = finding("oom-capture", "graphs")
    budget = rank("oom-capture", "TP0")["workers"][0]["budget"]

    assert found["lever"]["flag"] == "--mem-fraction-static"
    freed = (budget["mem_fraction_static"] - found["lever"]["value"]) * budget["pre_load_bytes"]
    assert freed >= found["numbers"]["short_by_bytes"]


@pytest.mark.parametrize("run", ["tenant", "oom-weights"])
def test_the_tenant_is_named_by_the_pid_that_took_the_memory(run: str) -> None:
    took = {one["pid"] for one in scenario(run)["tenants"]}

    named = {one["pid"] for one in finding(run, "foreign_tenant")["numbers"]["processes"]}
    assert named == took & named
    assert named


def test_the_left_over_is_one_of_the_orphans_and_costs_what_the_two_starts_differ_in() -> None:
    found = finding("leftover", "left_over")

    assert {one["pid"] for one in found["numbers"]["processes"]} <= set(scenario("leftover")["orphans"])
    tokens = [rank(run, "TP0")["workers"][0]["kv"]["tokens"] for run in ("car", "leftover")]
    assert tokens[0] - tokens[1] == pytest.approx(found["lever"]["gain_tokens"], rel=1e-3)


def test_a_killed_rank_is_not_called_out_of_memory_and_sglang_s_advice_is_refuted() -> None:
    assert "not an out-of-memory error" in finding("sigkill", "not_memory")["says"]
    assert "to a smaller value" in log("sigkill")  # what SGLang advises
    assert "no diagnosis" in finding("sigkill", "advice")["says"]


def test_the_low_fraction_re_adds_and_agrees_with_sglang_s_own_minimum() -> None:
    found = explained(str(LOWFRAC))[0]
    numbers = found["numbers"]

    assert found["rule"] == "weights_exceed_budget"
    slack = numbers["pre_load_bytes"] * (1 - numbers["mem_fraction_static"])
    assert numbers["rest_bytes"] == pytest.approx(numbers["available_bytes"] - slack, abs=64)
    said = re.search(r"minimum viable = 1 - available/pre = ([\d.]+)", LOWFRAC.with_suffix(".log").read_text("utf-8"))
    assert said
    assert float(said[1]) == pytest.approx(numbers["minimum_viable_fraction"], abs=5e-5)
    assert numbers["lowest_fraction"] < found["lever"]["value"] < numbers["highest_fraction"]


def test_where_the_idle_card_s_memory_went_is_what_was_measured_beside() -> None:
    numbers = finding("car", "before_the_weights")["numbers"]

    parts = ("context_bytes", "world_group_bytes", "communicators_bytes", "custom_allreduce_bytes", "other_bytes")
    assert numbers["idle_free_bytes"] - sum(numbers[part] for part in parts) == numbers["pre_load_bytes"]
    assert numbers["custom_allreduce_bytes"] / GIB == pytest.approx(0.033, abs=0.0005)
