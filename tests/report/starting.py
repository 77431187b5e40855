"""Starts that go on, built by hand: ranks that wait in the capture, one that still loads, one with less free."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from typing import Any

from sglang_probe.timeline.model import Process, Run, Step
from tests.timeline.building import build_rank, build_run, build_step

BEGAN = datetime(2026, 11, 29, 18, 45, tzinfo=timezone.utc)
LOADED_S = 40.0
"""When the weights of a rank that is not late were there."""


def stamp(seconds: float) -> str:
    return f"{BEGAN + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%f}000Z"


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def step(name: str, depth: int, begin_s: float, before: float, after: float | None, took_s: float | None) -> Step:
    more: dict[str, Any] = {} if took_s is not None else {"state": "open"}
    return build_step(name, depth, before, after, took_s, ts=stamp(begin_s), **more)


def rank(position: int, size: int, *, loads: bool = False, less: float = 0.0, begun: bool = True) -> Process:
    """A rank that captures, or that still loads; with `less` GiB free."""
    steps = [
        step("scheduler.init", 0, 1.0, 94.4 - less, None, None),
        step("dist.init", 1, 1.5, 94.4 - less, 94.0 - less, 4.5),
        step("dist.communicator GroupCoordinator tp:0", 2, 2.0, 94.4 - less, 94.0 - less, 3.0),
    ]
    if loads:
        steps.append(step("weights.load LlamaForCausalLM", 1, 8.0, 94.0 - less, None, None))
    else:
        steps.append(step("weights.load LlamaForCausalLM", 1, 8.0, 94.0 - less, 21.7 - less, LOADED_S - 8.0))
        steps.append(step("graph.capture decode", 1, 41.0, 12.25 - less, None, None))
    told = {"first_ts": stamp(0.5), "last_ts": stamp(8.0 if loads else 41.0), "alive": True}
    return build_rank(position, size, tuple(steps) if begun else (), **told)


def starting(
    size: int, loads: Collection[int] = (), less: Collection[int] = (), before: Collection[int] = (), **more: Any
) -> Run:
    """A start of so many ranks; those named are late, have 0.3 GiB less free, or have not begun."""
    ranks = tuple(
        rank(place, size, loads=place in loads, less=0.3 * (place in less), begun=place not in before)
        for place in range(size)
    )
    launcher = Process(host="node-a", pid=4700, role="launcher", alive=True)
    known = {"started": stamp(0), "ended": stamp(41.0), **more}
    return build_run((launcher, *ranks), "starting", **known)
