"""Runs to plan from: the recorded ones, and any budget built by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sglang_probe.collect import read
from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.model import CannotPlan, Plan
from sglang_probe.timeline import build
from sglang_probe.timeline.model import (
    Budget,
    Device,
    Health,
    Kv,
    Pool,
    PreLoad,
    Process,
    Provenance,
    Rank,
    RankPart,
    Run,
    Step,
    Worker,
)
from tests.timeline.making import unknowable

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
GIB = 1 << 30
MIB = 1 << 20


@cache
def recorded(name: str) -> Run:
    """Return a recorded run, by its directories under tests/data."""
    (run,) = build(read([DATA / name]), alive=unknowable).runs
    return run


@cache
def recordings() -> tuple[str, ...]:
    """Return the names of all recorded runs, those that came to a budget."""
    found = sorted({str(path.parent.relative_to(DATA)) for path in DATA.glob("*/*/*.jsonl")})
    return tuple(name for name in found if _came_to_a_budget(recorded(name)))


def _came_to_a_budget(run: Run) -> bool:
    try:
        facts_of(run)
    except CannotPlan:
        return False
    return True


CAR = "h200-x2-sglang-0.5.14/car"


def value(plan: Plan, name: str) -> Any:
    """Return a planned number, which has to be there."""
    number = plan.number(name)
    assert number is not None, name
    return number.planned


def known(plan: Plan, name: str) -> int:
    """Return a planned number that has to be known; 0 where the plan has no such row."""
    number = plan.number(name)
    if number is None:
        return 0
    assert number.planned is not None, (name, number.says)
    return int(number.planned)


def made_run(
    *,
    pre_load: int = 90 * GIB,
    weights: int = 20 * GIB,
    available: int = 70 * GIB,
    fraction: float = 0.8,
    token: int = 1 << 16,
    page: int = 1,
    deductions: dict[str, int] | None = None,
    free: int | None = None,
    tp: int = 2,
    worker: dict[str, Any] | None = None,
    **effective: Any,
) -> Run:
    """Return a run of one rank seen whose budget is as given, with the pools that this budget gives."""
    taken = deductions or {}
    rest = int((available / GIB - pre_load / GIB * (1 - fraction) - sum(taken.values()) / GIB) * GIB)
    tokens = max(rest // token, 0) // page * page
    budget = Budget(
        pre_load_bytes=pre_load,
        available_bytes=available,
        mem_fraction_static=fraction,
        mem_fraction_static_given=fraction,
        slack_bytes=round(pre_load * (1 - fraction)),
        deductions=taken,
        rest_bytes=rest,
        bytes_per_token=token,
        minimum_viable_fraction=None if "mamba" in taken else 1 - (available - sum(taken.values())) / pre_load,
        result=rest,
        result_unit="bytes",
        state="ok",
    )
    pools = (
        Pool(kind="request", pool_class="ReqToTokenPool", tokens=2048, bytes=2048 * 4100 * 4),
        Pool(kind="MHA", tokens=tokens, bytes=(tokens + page) * token, dtype="bfloat16", page_size=page, layers=16),
    )
    kv = Kv(tokens=tokens, bytes_per_token=token, pools=pools, limited_by="memory", profiled_tokens=tokens)
    whole = (tokens + page) * token + 40 * MIB
    steps = (
        _step("scheduler.init", 0, None, free_bytes=available - whole - 160 * MIB if free is None else free),
        _step("weights.load", 1, weights, attributes={"dtype": "bfloat16"}),
        _step("kv.pool", 1, whole, attributes={"pool": "all"}),
        _step("kv.profile", 2, 0, parent="kv.pool"),
        _step("kv.pool", 2, 34 * MIB, id="request", parent="kv.pool", attributes={"pool": "request"}),
        _step("attention.init", 1, 64 * MIB),
        _step("graph.capture", 1, 96 * MIB, attributes={"graph": "decode", "sizes": [1, 2, 4, 8]}),
    )
    target = Worker(worker="target", weights_bytes=weights, budget=budget, kv=kv if tokens else None, **worker or {})
    return _run(steps if tokens else steps[1:4], target, {"tp_size": tp, "context_length": 4096, **effective})


def _run(steps: tuple[Step, ...], target: Worker, effective: dict[str, Any]) -> Run:
    process = Process(
        host="node-a",
        pid=4711,
        role="scheduler",
        label="TP0",
        rank=Rank(tp=RankPart(0, 2), world=RankPart(0, 2)),
        device=Device(index=0, kind="cuda"),
        steps=steps,
        workers=(target,),
        pre_load=PreLoad(custom_allreduce_bytes=34 * MIB, communicators_bytes=900 * MIB),
    )
    return Run(
        run_id="made",
        launch=0,
        source="events",
        outcome="ready" if steps[0].phase == "scheduler.init" else "failed",
        provenance=Provenance(sglang_version="0.5.14", effective=effective),
        processes=(process,),
        health=Health(ok=True),
    )


def _step(phase: str, depth: int, cost: int | None, **more: Any) -> Step:
    known: dict[str, Any] = {"id": phase, "parent": None, "worker": "target", "state": "ok", **more}
    return Step(phase=phase, depth=depth, cost_bytes=cost, **known)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Any budget: also one that leaves nothing, with pages, deductions and a cap."""
    pre_load = draw(st.integers(8 * GIB, 200 * GIB))
    weights = draw(st.integers(0, pre_load))
    return made_run(
        pre_load=pre_load,
        weights=weights,
        available=draw(st.integers(0, pre_load - weights)),
        fraction=draw(st.floats(0.01, 0.99)),
        token=draw(st.integers(1 << 10, 1 << 20)),
        page=draw(st.sampled_from((1, 16, 64))),
        deductions=draw(st.dictionaries(st.sampled_from(("mamba", "multimodal")), st.integers(0, GIB))),
        max_mamba_cache_size=draw(st.sampled_from((None, 64))),
    )


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    """Any settings."""

    def some(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | values)

    return Inputs(
        mem_fraction_static=some(st.floats(0.01, 0.99)),
        tp=some(st.sampled_from((1, 2, 4, 8))),
        kv_cache_dtype=some(st.sampled_from(("auto", "fp8_e5m2", "fp4_e2m1"))),
        cuda_graph_max_bs=some(st.integers(1, 600)),
        max_running_requests=some(st.integers(1, 5000)),
        context_length=some(st.integers(1, 1 << 18)),
        max_total_tokens=some(st.integers(1, 1 << 24)),
        page_size=some(st.sampled_from((1, 16, 64))),
        quantization=some(st.sampled_from(("fp8", "awq"))),
        custom_all_reduce=some(st.just(False)),
        kv_heads=some(st.integers(1, 64)),
    )
