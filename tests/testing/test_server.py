"""A fake server starts, serves, fails and dies as SGLang's does."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from sglang_probe.testing import (
    GIB,
    MIB,
    RELEASES,
    Card,
    Costs,
    FakeServer,
    Fault,
    Model,
    NotReady,
    Run,
    Scenario,
    Tenant,
)

HEALTHY = Scenario(gpus=2, serve=False)
EITHER = RELEASES[0]
"""For what both releases share."""
EAGLE = ("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "draft")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(directory: Path, release: str, scenario: Scenario, *flags: str) -> Run:
    return FakeServer(directory, scenario, release=release, arguments=flags).run()


def steps(log: str, rank: str) -> list[str]:
    """Return what one rank logged, figures and all that follows them cut off."""
    lines = [line.partition("] ") for line in log.splitlines() if re.match(rf"\[[^]]* {rank}\] ", line)]
    return [re.split(r"[=\d]|\. ", message)[0].strip(" .:") for _, _, message in lines]


PHASES = {
    "0.5.9": [
        "Init torch distributed begin", "sglang is using nccl", "Init torch distributed ends",
        "Load weight begin", "Load weight end", "KV Cache is allocated", "Memory pool end",
        "Capture cuda graph begin", "Capture cuda graph bs [", "Capture cuda graph end",
        "Init torch distributed begin", "Init torch distributed ends", "Load weight begin", "Load weight end",
        "KV Cache is allocated", "Memory pool end", "Capture draft cuda graph begin", "Capture draft cuda graph end",
        "Capture draft extend cuda graph begin", "Capture draft extend cuda graph end", "max_total_num_tokens",
    ],
    "0.5.14": [
        "Init torch distributed begin", "sglang is using nccl", "Init torch distributed ends",
        "Load weight begin", "Load weight end",
        "Init torch distributed begin", "Init torch distributed ends", "Load weight begin", "Load weight end",
        "KV Cache is allocated", "Memory pool end", "KV Cache is allocated", "Memory pool end",
        "Capture target verify CUDA graph begin", "Capture target verify CUDA graph end",
        "Capture draft decode CUDA graph begin", "Capture draft decode CUDA graph end",
        "Capture draft extend CUDA graph begin", "Capture draft extend CUDA graph end", "max_total_num_tokens",
    ],
}  # fmt: skip


def test_phases_come_in_the_releases_own_order(tmp_path: Path, release: str) -> None:
    run = start(tmp_path, release, HEALTHY, "--tp", "2", *EAGLE)
    assert PHASES[release] == steps(run.log, "TP0")


def test_a_served_prompt_gets_the_same_tokens_every_time(tmp_path: Path) -> None:
    answers = []
    for attempt in ("once", "again"):
        with FakeServer(tmp_path / attempt, release=EITHER) as server:
            server.wait_until_ready()
            body = json.dumps({"text": "Hello", "sampling_params": {"max_new_tokens": 5}}).encode()
            with urllib.request.urlopen(f"{server.url}/generate", data=body, timeout=10) as answer:
                answers.append(json.load(answer))
    assert answers[0] == answers[1]
    assert 5 == len(answers[0]["output_ids"])


def test_sigterm_ends_the_whole_tree(tmp_path: Path) -> None:
    with FakeServer(tmp_path, Scenario(gpus=2), release=EITHER, arguments=["--tp", "2"]) as server:
        server.wait_until_ready()
        assert 2 == sum(len(gpu.processes) for gpu in server.gpus)
        os.kill(server.pid, signal.SIGTERM)
        run = server.wait()
        assert run.returncode == 0
        assert "SIGTERM received" in run.log
        assert [{}, {}] == [gpu.processes for gpu in run.gpus]


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (("--tp", "2", "--dp", "2"), ["DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1"]),
        (("--tp", "4", "--dp", "2", "--enable-dp-attention"), ["DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"]),
        (("--tp", "2", "--pp", "2"), ["PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1"]),
        (("--tp", "2", "--ep", "2"), ["TP0 EP0", "TP1 EP1"]),
        ((), []),
    ],
)
def test_ranks_are_named_as_sglang_names_them(
    tmp_path: Path, release: str, arguments: tuple[str, ...], labels: list[str]
) -> None:
    run = start(tmp_path, release, Scenario(gpus=4, serve=False), *arguments)
    assert run.returncode == 0, run.log
    logged = set(re.findall(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ?([^]]*)\]", run.log))
    assert labels == sorted(logged - {""})


@pytest.mark.parametrize(
    ("model", "pools"),
    [
        (Model(layers=4), ["KV Cache is allocated"]),
        (Model(layers=4, kv_lora_rank=512), ["KV Cache is allocated"]),
        (Model(layers=4, kv_lora_rank=512, sparse_attention=True), ["KV Cache is allocated"]),
        (Model(layers=4, swa_layers=3), ["KV Cache is allocated", "KV Cache is allocated", "SWAKVPool mem usage"]),
        (
            Model(layers=4, mamba_layers=3, mamba_cache_per_req_bytes=20 * MIB),
            ["Mamba Cache is allocated", "KV Cache is allocated"],
        ),
    ],
    ids=["MHA", "MLA", "sparse MLA", "sliding window", "mamba"],
)
def test_every_kind_of_model_fills_its_budget(tmp_path: Path, release: str, model: Model, pools: list[str]) -> None:
    run = start(tmp_path, release, Scenario(model=model, serve=False), "--mem-fraction-static", "0.8")
    assert pools == [line for line in steps("".join(_with_rank(run.log)), "R") if line in pools]
    (pid,) = {record.pid for record in run.gpus.records()}
    taken = run.gpus.taken(gpu=0, pid=pid)
    lost = sum(taken[label].device_bytes for label in ("cuda_context", "communicator"))
    before = run.gpus.scenario.card.cuda_total_bytes - lost
    budget = before * 0.8 - taken["weights_target"].device_bytes
    # The pools fill it up to a token, a page of padding, and the allocator's segments.
    assert 0.999 * budget < taken["kv_pool"].torch_bytes < 1.001 * budget


def _with_rank(log: str) -> list[str]:
    return [re.sub(r"^(\[[^]]*)\] ", r"\1 R] ", line) for line in log.splitlines(keepends=True)]


def test_a_cap_on_tokens_is_kept_and_one_too_high_is_said(tmp_path: Path, release: str) -> None:
    low = start(tmp_path / "low", release, Scenario(serve=False), "--max-total-tokens", "4096")
    assert "max_total_num_tokens=4096," in low.log
    high = start(tmp_path / "high", release, Scenario(serve=False), "--max-total-tokens", "999999999")
    assert "max_total_tokens=999999999 is larger than the profiled value" in high.log


def test_a_process_on_one_card_makes_the_ranks_unbalanced(tmp_path: Path, release: str) -> None:
    scenario = Scenario(gpus=2, tenants=(Tenant(gpu=1, pid=114880, bytes=30 * GIB),))
    run = start(tmp_path, release, scenario, "--tp", "2")
    assert run.returncode == -9
    assert "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes." in run.log


def test_a_tenant_may_leave_while_the_server_starts(tmp_path: Path) -> None:
    tenant = Tenant(gpu=0, pid=114880, bytes=GIB, leaves_at="weights.load")
    run = start(tmp_path, EITHER, Scenario(tenants=(tenant,), serve=False))
    moved = [record.device_bytes for record in run.gpus.records(pid=114880)]
    assert [GIB, -GIB] == moved


def test_weights_that_do_not_fit_run_out_of_memory(tmp_path: Path) -> None:
    scenario = Scenario(card=Card(cuda_total_bytes=3 * GIB), costs=Costs(weights_torch_bytes=4 * GIB))
    run = start(tmp_path, EITHER, scenario)
    assert run.returncode == -9
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total" in run.log


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("weights.load", "oom", ranks=(1,)), "torch.OutOfMemoryError: CUDA out of memory"),
        (Fault("graph.capture", "oom", ranks=(1,)), "Exception: Capture cuda graph failed: CUDA out of memory"),
        (Fault("kv.pool", "raise", ranks=(0,)), "RuntimeError: the scenario lets this rank fail in kv.pool"),
        (Fault("weights.load", "kill", ranks=(1,)), "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed"),
    ],
    ids=["out of memory in weights", "out of memory in capture", "raises", "killed"],
)
def test_a_rank_that_fails_takes_its_peers_with_it(tmp_path: Path, release: str, fault: Fault, said: str) -> None:
    run = start(tmp_path, release, Scenario(gpus=2, faults=(fault,)), "--tp", "2")
    assert run.returncode == -9
    assert said in run.log
    assert [{}, {}] == [gpu.processes for gpu in run.gpus]


def test_a_rank_that_ends_without_a_word_is_found_dead(tmp_path: Path) -> None:
    run = start(tmp_path, EITHER, Scenario(faults=(Fault("attention.init", "exit", exit_code=7),)))
    assert "Rank 0 scheduler is dead. Please check if there are relevant logs." in run.log
    assert "Exit code: 7" in run.log
    assert run.returncode == 1


def test_a_custom_all_reduce_that_fails_is_done_without(tmp_path: Path, release: str) -> None:
    scenario = Scenario(gpus=2, serve=False, faults=(Fault("allreduce.buffers", "oom"),))
    run = start(tmp_path, release, scenario, "--tp", "2")
    assert run.returncode == 0
    assert "Setup Custom allreduce failed with CUDA out of memory" in run.log


def test_cards_without_nvlink_disable_the_custom_all_reduce(tmp_path: Path, release: str) -> None:
    run = start(tmp_path, release, Scenario(gpus=4, nvlink=False, serve=False), "--tp", "4")
    assert "on more than two PCIe-only GPUs" in run.log
    assert not [record for record in run.gpus.records() if record.label == "custom_allreduce"]


def test_a_start_that_hangs_runs_until_it_is_stopped(tmp_path: Path) -> None:
    scenario = Scenario(gpus=2, faults=(Fault("weights.load", "hang", ranks=(1,)),))
    with FakeServer(tmp_path, scenario, release=EITHER, arguments=["--tp", "2"]) as server:
        until = time.monotonic() + 20
        while "TP0] Load weight end" not in server.log and time.monotonic() < until:
            time.sleep(0.02)
        with pytest.raises(NotReady, match="is not ready"):
            server.wait_until_ready(0.2)
        with pytest.raises(TimeoutError, match=r"still runs after 0\.1 s"):
            server.wait(0.1)
    assert [{}, {}] == [gpu.processes for gpu in server.gpus]


def test_a_phase_can_be_made_to_take_time(tmp_path: Path) -> None:
    run = start(tmp_path, EITHER, Scenario(serve=False, phase_seconds={"weights.load": 0.3}))
    (elapsed,) = re.findall(r"Load weight end\. elapsed=([\d.]+) s", run.log)
    assert float(elapsed) >= 0.3


def test_a_wrong_flag_is_refused_as_by_argparse(tmp_path: Path) -> None:
    run = start(tmp_path, EITHER, Scenario(), "--tensor-paralel", "2")
    assert run.returncode == 2
    assert "unrecognized arguments" in run.log
