"""Starts on real GPUs that differ in one thing: `diff` names it, `plan` foresees it, `explain` says what is odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.recordings.replay import DATA

EXPERIMENTS = DATA.with_name("h200-x2-sglang-0.5.14-experiments")
FLAGS = {
    "fraction80": "--mem-fraction-static",
    "fp8kv": "--kv-cache-dtype",
    "requests": "--max-running-requests",
    "context": "--context-length",
}
"""Experiments whose one flag changes nothing else among SGLang's arguments."""
FORESEEN = ("fraction80", "fp8kv", "requests", "context", "maxbs64", "chunk2k")
"""Those whose tokens a plan from `car` gives exactly."""


@cache
def told(*words: str) -> Any:
    command = [sys.executable, "-m", "sglang_probe", *words, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


def at(name: str) -> str:
    return str(EXPERIMENTS / name)


def findings(name: str) -> dict[str, Any]:
    (run,) = told("explain", at(name))["runs"]
    return {one["rule"]: one for one in run["findings"]}


def tokens(name: str) -> int:
    (run,) = told("timeline", at(name))["runs"]
    return int(min(one["kv"]["tokens"] for process in run["processes"] for one in process["workers"] if one["kv"]))


@pytest.mark.parametrize("name", FLAGS)
def test_a_controlled_experiment_is_recognised_by_its_flag(name: str) -> None:
    experiment = told("diff", at("car"), at(name))["experiment"]

    assert FLAGS[name] == experiment["key"]
    assert tokens(name) - tokens("car") == experiment["delta_tokens"]


@pytest.mark.parametrize("name", FORESEEN)
def test_a_plan_from_the_baseline_gives_the_tokens_that_were_measured(name: str) -> None:
    (row,) = [one for one in told("plan", at("car"), "--against", at(name))["numbers"] if one["name"] == "tokens"]

    assert tokens(name) == row["planned"]


def test_another_server_on_the_cards_is_named_and_its_cost_is_what_the_two_starts_differ_in() -> None:
    found = findings("twoservers")["two_servers"]

    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1"} == {one["name"] for one in found["numbers"]["processes"]}
    assert tokens("car") - tokens("twoservers") == pytest.approx(found["lever"]["gain_tokens"], rel=1e-3)


def test_a_context_where_none_belongs_is_found_on_the_card_and_is_not_unlisted_memory() -> None:
    found = findings("straycontext")

    assert ["TP0"] == found["stray_context"]["ranks"]
    assert "it belongs on GPU 1" in found["stray_context"]["says"]
    assert "unlisted_memory" not in found
    assert "stray_context" not in findings("car")


@pytest.mark.parametrize(("name", "size"), [("oom-capture-size", 512), ("oom-capture-later", 2)])
def test_a_capture_says_the_size_at_which_it_died(name: str, size: int) -> None:
    found = findings(name)["graphs"]

    assert size == found["numbers"]["failed_size"]
    assert f"at size {size}" in found["says"]
    assert any("capture_one_shape" in note for note in found["notes"])


@pytest.mark.parametrize("name", ["car", "tp1", *FORESEEN])
def test_a_healthy_start_has_nothing_to_warn_of(name: str) -> None:
    assert {"info"} == {one["severity"] for one in findings(name).values()}
