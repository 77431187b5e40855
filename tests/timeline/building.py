"""Timelines built by hand: a run of ranks with steps and budgets, whatever the tests want them to be."""

from __future__ import annotations

from typing import Any

from sglang_probe.figures import GIB
from sglang_probe.timeline.model import Budget, Device, Health, Process, Provenance, Rank, RankPart, Run, Step

CARD = 94.974
"""GiB that CUDA reports for a card of 96 GB."""


def gib(amount: float) -> int:
    return round(amount * GIB)


def build_step(
    name: str, depth: int, before: float | None, after: float | None, duration_s: float | None, **more: Any
) -> Step:
    """A step whose free memory goes from `before` to `after` GiB; `name` is the phase and what it was for."""
    phase, _, detail = name.partition(" ")
    delta = None if before is None or after is None else gib(after) - gib(before)
    known = {
        "id": f"{name}/{depth}",
        "parent": None,
        "detail": detail or None,
        "state": "ok",
        "free_before_bytes": None if before is None else gib(before),
        "free_bytes": None if after is None else gib(after),
        "delta_bytes": delta,
        "cost_bytes": None if delta is None else -delta,
    }
    return Step(phase=phase, depth=depth, duration_s=duration_s, **{**known, **more})


def build_rank(position: int, size: int, steps: tuple[Step, ...], **more: Any) -> Process:
    part = RankPart(position, size)
    device = Device(index=position, name="NVIDIA H20", kind="cuda", total_bytes=gib(CARD))
    known = {"rank": Rank(tp=part, world=part), "label": f"TP{position}", "device": device}
    return Process(host="node-a", pid=4711 + position, role="scheduler", steps=steps, **{**known, **more})


def build_budget(available: float, pre_load: float, fraction: float, **more: Any) -> Budget:
    """A budget whose other terms follow from the three given ones."""
    deductions = more.get("deductions", {})
    slack = gib(pre_load) * (1 - fraction)
    known = {
        "available_bytes": gib(available),
        "pre_load_bytes": gib(pre_load),
        "mem_fraction_static": fraction,
        "slack_bytes": round(slack),
        "rest_bytes": round(gib(available) - slack - sum(deductions.values())),
        "minimum_viable_fraction": 1 - (gib(available) - sum(deductions.values())) / gib(pre_load),
        "verified": True,
        "state": "ok",
    }
    return Budget(**{**known, **more})


def build_run(processes: tuple[Process, ...], outcome: Any, **more: Any) -> Run:
    known = {
        "run_id": "20261129T184500Z-3fa9c1",
        "launch": 0,
        "source": "events",
        "started": "2026-11-29T18:45:00.123456789Z",
        "ended": "2026-11-29T18:45:41.523456789Z",
        "provenance": PROVENANCE,
        "health": Health(ok=True),
    }
    return Run(processes=processes, outcome=outcome, **{**known, **more})


PROVENANCE = Provenance(
    command=("python", "-m", "sglang.launch_server", "--model-path", "/models/m", "--mem-fraction-static", "0.55"),
    sglang_version="0.5.9",
    sglang_commit="0123456789abcdef0123456789abcdef01234567",
    sglang_dirty=True,
    versions={"torch": "2.9.1", "cuda": "12.9", "nccl": "2.27.5", "driver": "570.133.20", "python": "3.12.1"},
)
