"""failures.py on fake GPUs and a fake SGLang: tenants, kills and poison come out as they must on real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.served import ROOT
from sglang_probe.testing.core.scenario import GIB, MIB, Scenario
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.gpu import FakeGpus
from tests.bench.fakes import H200

IN_CAPTURE_S = 2.0
"""The kill comes 0.7 s after a capture's begin."""


def test_each_failure_comes_out_as_expected_and_nothing_is_left_on_the_cards(tmp_path: Path) -> None:
    played = ("tenant", "poisoned", "sigkill", "oom-weights")
    scenario = Scenario(gpus=2, card=H200, phase_seconds={"graph.capture": IN_CAPTURE_S})
    with FakeGpus.create(tmp_path / "gpus", scenario) as gpus:
        env = {**os.environ, **gpus.environment, "PYTHONPATH": str(make_site(tmp_path / "site", "0.5.14"))}
        command = [sys.executable, str(ROOT / "bench" / "failures.py"), str(tmp_path / "out"), "--model", "fake"]
        words = [*command, "--tp", "2", "--only", *played]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert [line.split()[:3] for line in done.stdout.splitlines()] == [[one, "as", "expected"] for one in played]
        assert all(gpu.processes == {} for gpu in gpus)
    told = {one: json.loads((tmp_path / "out" / one / "scenario.json").read_text()) for one in played}
    assert [one["bytes"] for one in told["tenant"]["tenants"]] == [30 * GIB]
    assert told["tenant"]["machine"]["cards"] == "2 x NVIDIA H200"
    assert told["sigkill"]["outcome"] == "died"
    assert all(free > 0 for free in told["poisoned"]["nvml_free_bytes_in_them"])


def test_starts_that_differ_in_one_thing_are_ready_and_capture_sizes_run_short(tmp_path: Path) -> None:
    played = ("tp1", "fraction80", "maxbs64", "twoservers", "straycontext", "oom-capture-size")
    with FakeGpus.create(tmp_path / "gpus", Scenario(gpus=2, card=H200)) as gpus:
        env = {**os.environ, **gpus.environment, "PYTHONPATH": str(make_site(tmp_path / "site", "0.5.14"))}
        command = [sys.executable, str(ROOT / "bench" / "failures.py"), str(tmp_path / "out"), "--model", "fake"]
        words = [*command, "--tp", "2", "--only", *played]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert all(gpu.processes == {} for gpu in gpus)
    told = {one: json.loads((tmp_path / "out" / one / "scenario.json").read_text()) for one in played}
    assert told["twoservers"]["first_lived"] is True
    assert {start["run"] for start in told["twoservers"]["starts"]} == {"first", "twoservers"}
    assert H200.context_bytes // MIB in told["straycontext"]["process_mib"].values()
    ((_, _, phase, sizes),) = told["oom-capture-size"]["attempts"]
    assert (phase, 1) == ("graph.capture", len(set(sizes)))


def test_what_breaks_one_scenario_does_not_cost_the_next(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_PROBE")}  # and no cards
    env = {**clean, "PYTHONPATH": str(make_site(tmp_path / "site", "0.5.14"))}
    command = [sys.executable, str(ROOT / "bench" / "failures.py"), str(tmp_path / "out"), "--model", "fake"]
    words = [*command, "--only", "oom-serve", "tenant"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines() if " AS EXPECTED" in line] == ["oom-serve", "tenant"]


def test_a_tenant_that_gets_no_memory_is_said(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_PROBE")}  # and no cards
    env = {**clean, "PYTHONPATH": str(make_site(tmp_path / "site", "0.5.14"))}
    command = [sys.executable, str(ROOT / "bench" / "failures.py"), str(tmp_path / "out"), "--model", "fake"]
    done = subprocess.run([*command, "--only", "tenant"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the tenant of GPU 0 did not get its memory" in done.stdout
    assert (tmp_path / "out" / "tenant" / "scenario.json").exists()
