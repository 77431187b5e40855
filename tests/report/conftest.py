"""Timelines to render, built by hand: the story of a failed start, a start that was killed, one that is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.collect.report import Loss, Place, ReadReport
from sglang_probe.timeline.model import (
    Degradation,
    Device,
    Failure,
    Health,
    Kv,
    Later,
    Missing,
    Pool,
    Process,
    Skew,
    Target,
    Timeline,
    Worker,
)
from tests.timeline.building import build_budget, build_rank, build_run, build_step, gib

GOLDEN = Path(__file__).parent / "golden"
NO_CONTEXT = "torch: no_context (no context on device 0 yet)"
NOT_ENOUGH = "Not enough memory. Please try to increase --mem-fraction-static."


@pytest.fixture
def story() -> Timeline:
    """Two ranks of DESIGN.md's story: the fraction is below what the weights leave, and the start fails."""
    told = Failure(
        id="e1",
        type="builtins.RuntimeError",
        message=NOT_ENOUGH,
        raised_in="sglang.srt.model_executor.model_runner:ModelRunner.init_memory_pool:1731",
    )
    passed = Failure(id="e1", type="builtins.RuntimeError")

    def rank(position: int) -> Process:
        steps = (
            build_step("scheduler.init", 0, 94.466, 21.697, 38.204, state="error", failure=passed),
            build_step("dist.init", 1, 94.466, 93.999, 4.021),
            build_step("dist.communicator ProcessGroup world", 2, 94.466, 94.378, 1.200),
            build_step("dist.communicator GroupCoordinator tp:0", 2, 94.378, 93.999, 2.700),
            build_step("dist.communicator PyNcclCommunicator tp:0", 3, 94.378, 94.031, 1.900),
            build_step("allreduce.buffers CustomAllreduce tp:0", 3, 94.031, 93.999, 0.052),
            build_step("weights.load", 1, 93.999, 21.697, 33.511, worker="target"),
            build_step("kv.pool all", 1, 21.697, 21.697, 0.003, state="error", worker="target", failure=told),
            build_step("kv.profile", 2, 21.697, 21.697, 0.002, worker="target"),
        )
        budget = build_budget(
            21.697,
            93.999,
            0.55,
            result=-220000,
            result_unit="tokens",
            pre_load_local_bytes=gib(94.1 - position / 10),
            available_local_bytes=gib(21.797 - position / 10),
        )
        return build_rank(position, 2, steps, workers=(Worker(worker="target", budget=budget),))

    launcher = Process(host="node-a", pid=4700, role="launcher")
    run = build_run((launcher, rank(0), rank(1)), "failed", failed_phase="kv.profile", failed_label="TP0", failure=told)
    return Timeline(runs=(run,), read=ReadReport(files=3, lines=64, bytes=65000, events=64))


@pytest.fixture
def killed() -> Timeline:
    """One rank was killed while its graphs were captured, a second was stopped for it, a third never wrote."""
    steps = (
        build_step("scheduler.init", 0, None, None, None, state="died", null_reason="it has no end"),
        build_step("dist.init", 1, None, 93.999, 4.0, null_reason=NO_CONTEXT),
        build_step("dist.communicator ProcessGroup world", 2, None, 94.2, 1.0, null_reason=NO_CONTEXT),
        build_step("weights.load", 1, 93.999, 21.697, 33.511, worker="target"),
        build_step("graph.capture decode", 1, 5.5, None, None, state="died", state_reason="its process is gone"),
    )
    stopped = (
        build_step("scheduler.init", 0, None, None, None, state="interrupted", null_reason="it has no end"),
        build_step("allreduce.buffers CustomAllreduce tp:0", 1, 93.999, 93.999, 0.001, attributes={"disabled": True}),
        build_step("kv.pool all", 1, 21.697, None, None, state="interrupted", state_reason="TP0 went first"),
    )
    torn = Loss("torn_tail", 1, "the last line of a file is cut off", True, (Place("node-a.4711.88.jsonl", 31),))
    foreign = Loss("foreign_line", 5, "a line is not a probe event", False, (Place("a.jsonl", 2), Place("b.jsonl")))
    health = Health(
        ok=False,
        says=("rank 2 of 3 wrote nothing",),
        absent_roles=("attention.init",),
        failed_targets=(Target(target="sglang.a:B.c", role="kv.pool", state="failed", reason="no such attribute"),),
        degraded=(Degradation(source="nvml", reason="library_not_found", detail="pynvml", count=1240),),
    )
    run = build_run(
        (build_rank(0, 3, steps, lost_events=2), build_rank(1, 3, stopped)),
        "died",
        failed_phase="graph.capture",
        failed_label="TP0",
        outcome_reason="its process is gone",
        launch=1,
        joined_run_ids=("20261129T184500Z-3fa9c1", "20261129T184501Z-aaaaaa"),
        missing=(Missing(world_rank=2, world_size=3, reason="no file of it is here"),),
        skew=(Skew(host="node-b", against="node-a", seconds=-0.25, uncertainty_s=0.002),),
        health=health,
    )
    read = ReadReport(files=3, lines=70, bytes=70000, events=64, losses=(torn, foreign), other_runs=4)
    return Timeline(runs=(run,), read=read)


@pytest.fixture
def ready() -> Timeline:
    """A rank with a draft, a recurrent deduction, a cap on its tokens, on a host whose memory is the device's."""
    steps = (
        build_step("scheduler.init", 0, 1000.25, 11.5, 61.5),
        build_step("weights.load", 1, 1000.25, 900.0, 33.5, worker="target"),
        build_step("weights.load", 1, 900.0, 899.0, 1.5, worker="draft", draft_index=0),
        build_step("graph.capture decode", 1, 11.5, 12.0, 9.125, worker="draft"),
    )
    budget = build_budget(
        899.0,
        1000.0,
        0.8825,
        deductions={"mamba": gib(1.5), "multimodal": gib(0.25)},
        minimum_viable_fraction=None,
        minimum_viable_fraction_reason="the deduction (mamba) depends on the fraction",
        mem_fraction_static_given=0.9,
        result=gib(780.0),
        result_unit="bytes",
    )
    kv = Kv(
        tokens=20_000,
        bytes=gib(1.25),
        bytes_per_token=65536,
        limited_by="max_total_tokens",
        max_total_tokens_given=20_000,
        profiled_tokens=12_779_520,
        pools=(
            Pool(kind="MHA", tokens=20_000, bytes=gib(1.25), dtype="torch.bfloat16", page_size=1, layers=32),
            Pool(kind="request", tokens=2049, bytes=gib(0.125)),
        ),
    )
    draft = build_budget(5.0, 1000.0, 0.8825, verified=None, verified_reason="not captured: bytes_per_token")
    process = build_rank(
        0,
        1,
        steps,
        device=Device(kind="cpu", total_bytes=gib(1007.5)),
        workers=(
            Worker(worker="target", budget=budget, kv=kv),
            Worker(worker="draft", draft_index=0, budget=draft, kv=Kv(tokens=20_000, limited_by="target")),
        ),
    )
    later = Later(ts=None, label="TP0", host="node-a", pid=4711, phase="graph.capture", what="OSError in graph.capture")
    run = build_run((process,), "ready", ready_s=61.5, later=(later,))
    return Timeline(runs=(run,), read=ReadReport(files=1, lines=30, bytes=30000, events=30))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return the golden text of a name. WRITE_GOLDEN=1 writes what the test rendered: read it before you commit it."""

    def expected(text: str) -> str:
        path = GOLDEN / f"{request.node.callspec.id}.txt"
        if os.environ.get("WRITE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        return path.read_text(encoding="utf-8")

    return expected
