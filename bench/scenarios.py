"""The failures that failures.py makes, each a scenario: what is done, what must come of it, how long it takes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from bench.served import BenchError
from bench.stage import Stage
from lanes.server import group_members, wait_until

PROMPTS: Final = ([17, 42, 99], [5, 4, 3, 2, 100, 101, 102])
GIB: Final = 1 << 30
TENANT_GIB: Final = 30.0
LEFT_FOR_WEIGHTS_GIB: Final = 4.0
"""On every card: context and communicators (1.5 GiB on an H200) fit, the 4.25 GiB of weights do not."""
BEFORE_PRE_LOAD_GIB: Final = 1.52
"""What context and communicators take of an idle H200."""
CAPTURE_SLACKS_GIB: Final = (0.48, 0.75, 0.36)
"""What is left beside the static budget, tried in this order until the capture is what fails."""
CAPTURE_BATCH: Final = "512"
INTO_CAPTURE_S: Final = 0.7
"""Seconds after a capture's begin: in its middle, where a warm one takes 3 s."""


@dataclass(frozen=True)
class Scenario:
    """One failure (or none). `outcomes` and `phases` are what the timeline must say; empty: whatever it says."""

    name: str
    what: str
    play: Callable[[Stage], None]
    outcomes: tuple[str, ...] = ()
    phases: tuple[str | None, ...] = ()
    seconds: int = 40
    """About how long it takes on a warm machine: less time left, and it is not begun."""
    cards: int = 0
    """Needs so many GPUs."""


def healthy(stage: Stage, *flags: str) -> None:
    """Serve, ask, ask doctor meanwhile, end."""
    with stage.server(*flags) as server:
        if not stage.until_over(server):
            raise BenchError(f"the server ended\n{server.tail()}")
        stage.notes["answers"] = [server.generate(prompt) for prompt in PROMPTS]
        stage.notes["process_mib"] = stage.cards.mib_by_title(set(group_members(server.pid)))
        stage.doctor()


def no_custom_all_reduce(stage: Stage) -> None:
    """The same without the custom all-reduce."""
    healthy(stage, "--disable-custom-all-reduce")


def killed(stage: Stage, phase: str = "graph.capture", after_s: float = INTO_CAPTURE_S) -> None:
    """SIGKILL one scheduler in the middle of a phase."""
    with stage.server() as server:
        begun = stage.until_event(server, f"sglang.memory.{phase}.begin", 1)
        time.sleep(after_s)
        os.kill(begun[0]["pid"], signal.SIGKILL)
        stage.notes["killed"] = {"pid": begun[0]["pid"], "signal": "SIGKILL", "phase": phase, "after_s": after_s}
        server.wait(lambda: False, stage.left_s(30))


def killed_in_pool(stage: Stage) -> None:
    """SIGKILL where nothing is captured: on a CPU."""
    killed(stage, "kv.pool", 0)


def capture_out_of_memory(stage: Stage) -> None:
    """Leave so little beside the static budget that weights, pools and attention fit and a capture does not."""
    pre_load = stage.cards.free_bytes(0) / GIB - BEFORE_PRE_LOAD_GIB
    for number, slack in enumerate(CAPTURE_SLACKS_GIB):
        if number:
            stage.afresh(kept_as=f"{stage.name}-attempt{number}")
        fraction = f"{1 - slack / pre_load:.5f}"
        with stage.server("--mem-fraction-static", fraction, "--cuda-graph-max-bs", CAPTURE_BATCH) as server:
            ready = stage.until_over(server)
        told = stage.timeline(stage.name)
        stage.notes.setdefault("attempts", []).append([fraction, told.get("outcome"), told.get("failed_phase")])
        if not ready and told.get("failed_phase") == "graph.capture":
            return


def weights_out_of_memory(stage: Stage) -> None:
    """Leave less on every card than the weights need."""
    with ExitStack() as stack:
        for gpu in range(stage.subject.tp):
            stack.enter_context(stage.tenant(gpu, "leave", LEFT_FOR_WEIGHTS_GIB))
        with stage.server() as server:
            stage.until_over(server)


def tenant(stage: Stage) -> None:
    """Another process holds memory of the last card."""
    with stage.tenant(stage.subject.tp - 1, "take", TENANT_GIB):
        stage.doctor()
        with stage.server() as server:
            stage.until_over(server)


def low_fraction(stage: Stage) -> None:
    """Weights alone are more than this budget."""
    with stage.server("--mem-fraction-static", "0.03" if len(stage.cards) else "0.0000001") as server:
        stage.until_over(server)


def poisoned(stage: Stage) -> None:
    """Rank 0 loses its CUDA context inside a hooked phase; its error event must still carry NVML's readings."""
    with stage.server(sabotage="poison") as server:
        stage.until_over(server)
    errors = stage.events("sglang.memory.attention.init.error", stage.name)
    after = [event["after"] or {} for event in errors]
    stage.notes["error_events"] = len(errors)
    stage.notes["nvml_free_bytes_in_them"] = [reading.get("nvml_free_bytes") for reading in after]
    if not errors or (len(stage.cards) and any(reading.get("nvml_free_bytes") is None for reading in after)):
        raise BenchError(f"the error events do not carry NVML's readings: {after}")


def left_over(stage: Stage) -> None:
    """The launcher is killed, its schedulers stay and hold their memory; the same server is started again."""
    with stage.server(run="orphan", sabotage="orphan") as first:
        stage.until_event(first, "sglang.memory.scheduler.init.end", stage.subject.tp, run="orphan")
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: first.returncode is not None, 10)
        time.sleep(1)
        stage.notes["orphans"] = group_members(first.pid)
        if not stage.notes["orphans"]:
            raise BenchError("no process outlived the launcher")
        stage.doctor()
        with stage.server() as second:
            stage.until_over(second)
    stage.timeline("orphan")


SCENARIOS: Final = (
    Scenario("car", "ready, served", healthy, ("ready",), (None,), 45),
    Scenario("nocar", "the same with --disable-custom-all-reduce", no_custom_all_reduce, ("ready",), (None,), 45, 2),
    Scenario("sigkill", "rank's scheduler killed by SIGKILL in graph capture", killed, ("died", "failed"),
             ("graph.capture",), 40, 1),
    Scenario("sigkill-pool", "rank's scheduler killed by SIGKILL while pools are made", killed_in_pool,
             ("died", "failed"), ("kv.pool", "kv.profile"), 40),
    Scenario("oom-capture", "out of memory in graph capture", capture_out_of_memory, ("failed",),
             ("graph.capture",), 60, 1),
    Scenario("poisoned", "a device-side assert in rank 0's attention.init: its CUDA context is lost", poisoned,
             ("failed",), ("attention.init",), 40),
    Scenario("tenant", f"another process holds {TENANT_GIB:.0f} GiB of the last card", tenant, ("failed",),
             ("dist.init",), 40, 2),
    Scenario("oom-weights", f"tenants leave {LEFT_FOR_WEIGHTS_GIB:.0f} GiB on every card", weights_out_of_memory,
             ("failed",), ("weights.load",), 45, 1),
    Scenario("lowfrac", "the static budget is smaller than the weights", low_fraction, ("failed",),
             ("kv.profile",), 35),
    Scenario("leftover", "started while the schedulers of a killed launcher hold the cards", left_over, seconds=75),
)  # fmt: skip
