"""What failures.py plays, failures and experiments, each a scenario: what is done, what must come of it, how long."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from bench.served import BenchError, Served
from bench.stage import Stage
from lanes.server import group_members, wait_until

PROMPTS: Final = ([17, 42, 99], [5, 4, 3, 2, 100, 101, 102])
GIB: Final = 1 << 30
TENANT_GIB: Final = 30.0
STORY_GPU: Final = 5
"""The card on which a team of the design's story had somebody else's process."""
LEFT_FOR_WEIGHTS_GIB: Final = 4.0
"""On every card: context and communicators (1.5 GiB on an H200) fit, the 4.25 GiB of weights do not."""
TOO_LOW_OF_ONE_RANK: Final = 0.06
"""The weights, 8.46 GiB on one H200, need 0.061 of what it has left for them; ranks share them."""
BEFORE_PRE_LOAD_GIB: Final = 1.52
"""What context and communicators take of an idle H200."""
CAPTURE_SLACKS_GIB: Final = (0.48, 0.75, 0.36)
"""What is left beside the static budget, tried in this order until the capture is what fails."""
SIZE_SLACKS_GIB: Final = (0.68, 0.74, 0.62)
"""The same with the buffers of that batch (0.25 GiB on an H200): the logits of its first size fit no more."""
CAPTURE_BATCH: Final = "512"
SERVE_SLACKS_GIB: Final = (0.62, 0.8)
"""Enough to get ready and to answer three tokens, too little for the activations of the long prompt."""
LONG_PROMPT: Final = [7 + number % 1000 for number in range(8000)]
FIRST_FRACTION: Final = "0.4"
INTO_CAPTURE_S: Final = 0.7
"""Seconds after a capture's begin: in its middle, where a warm one takes 3 s."""
SECONDS_A_RANK: Final = 4
"""What a start takes longer for each rank more: 3.5 between 1 and 2 on H200s; for 4 and 8 a guess, not measured."""


@dataclass(frozen=True)
class Scenario:
    """One failure (or none). `outcomes` and `phases` are what the timeline must say; empty: whatever it says."""

    name: str
    what: str
    play: Callable[[Stage], None]
    outcomes: tuple[str, ...] = ()
    phases: tuple[str | None, ...] = ()
    seconds: int = 40
    """About how long it takes two ranks on a warm machine."""
    cards: int = 0
    """Needs so many GPUs."""
    ranks: int | None = None
    """Plays with so many, whatever --tp says."""

    def seconds_with(self, tp: int) -> int:
        """Return about how long it takes at --tp: with less time left it is not begun."""
        return self.seconds + SECONDS_A_RANK * max(0, (self.ranks or tp) - 2)


def healthy(stage: Stage, *flags: str, doctor: bool = True) -> None:
    """Serve, ask, ask doctor meanwhile, end."""
    with stage.server(*flags) as server:
        stage.until_ready(server)
        stage.notes["answers"] = [server.generate(prompt) for prompt in PROMPTS]
        stage.notes["process_mib"] = stage.cards.mib_by_title(set(group_members(server.pid)))
        if doctor:
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


def fractions(stage: Stage, slacks_gib: Sequence[float]) -> Iterator[str]:
    """Yield the fraction that leaves each slack beside the static budget; what an attempt left is kept."""
    pre_load = stage.cards.free_bytes(0) / GIB - BEFORE_PRE_LOAD_GIB
    for number, slack in enumerate(slacks_gib):
        if number:
            stage.afresh(kept_as=f"{stage.name}-attempt{number}")
        yield f"{1 - slack / pre_load:.5f}"


def capture_out_of_memory(
    stage: Stage, slacks_gib: Sequence[float] = CAPTURE_SLACKS_GIB, in_size: bool = False
) -> None:
    """Leave so little beside the static budget that weights, pools and attention fit and a capture does not.

    `in_size`: the buffers fit too, and what fails is the capture of a size.
    """
    for fraction in fractions(stage, slacks_gib):
        with stage.server("--mem-fraction-static", fraction, "--cuda-graph-max-bs", CAPTURE_BATCH) as server:
            ready = stage.until_over(server)
        told, sizes = stage.timeline(stage.name), failed_sizes(stage)
        attempt = [fraction, told.get("outcome"), told.get("failed_phase"), sizes]
        stage.notes.setdefault("attempts", []).append(attempt)
        if not ready and told.get("failed_phase") == "graph.capture" and (sizes or not in_size):
            return


def capture_of_a_size_out_of_memory(stage: Stage) -> None:
    """The same with memory for the buffers, so that the first size is what fails."""
    capture_out_of_memory(stage, SIZE_SLACKS_GIB, in_size=True)


def capture_of_a_later_size_out_of_memory(stage: Stage) -> None:
    """The memory is gone once two sizes are captured."""
    with stage.server(sabotage="squeeze") as server:
        stage.until_over(server)
    stage.notes["failed_sizes"] = failed_sizes(stage)


def failed_sizes(stage: Stage) -> list[int]:
    """Return the sizes at which the run's captures failed, as the events have it."""
    errors = stage.events("sglang.memory.graph.capture.error", stage.name)
    return [size for event in errors if (size := event["attributes"].get("failed_size")) is not None]


def served_out_of_memory(stage: Stage) -> None:
    """Leave too little for the activations of a long prompt: the server gets ready, and dies of that prompt."""
    for fraction in fractions(stage, SERVE_SLACKS_GIB):
        with stage.server("--mem-fraction-static", fraction, "--disable-cuda-graph") as server:
            ready = stage.until_over(server)
            answered = ready and answers(server, LONG_PROMPT, stage.left_s(60))
            if not answered:
                server.wait(lambda: False, stage.left_s(30))
        stage.notes.setdefault("attempts", []).append([fraction, ready, answered, server.returncode])
        if ready and not answered:
            stage.notes["asked"] = {"input_ids": len(LONG_PROMPT), "max_new_tokens": 16}
            return
    raise BenchError("no attempt got ready and died of the prompt")


def weights_out_of_memory(stage: Stage) -> None:
    """Leave less on every card than the weights need."""
    with ExitStack() as stack:
        for gpu in range(stage.subject.tp):
            stack.enter_context(stage.tenant(gpu, "leave", LEFT_FOR_WEIGHTS_GIB))
        with stage.server() as server:
            stage.until_over(server)


def tenant(stage: Stage, gpu: int | None = None) -> None:
    """Another process holds memory of one card, the last where none is named."""
    last = stage.subject.tp - 1
    if gpu is not None and gpu > last:
        raise BenchError(f"GPU {gpu} is none of the server's, whose last is {last}: say --tp {gpu + 1} or more")
    with stage.tenant(last if gpu is None else gpu, "take", TENANT_GIB):
        stage.doctor()
        with stage.server() as server:
            stage.until_over(server)


def tenant_of_the_story(stage: Stage) -> None:
    """Another process holds memory of the card of the story."""
    tenant(stage, STORY_GPU)


def low_fraction(stage: Stage) -> None:
    """Weights alone are more than this budget."""
    fraction = TOO_LOW_OF_ONE_RANK / stage.subject.tp if len(stage.cards) else 1e-7
    with stage.server("--mem-fraction-static", f"{fraction:.7f}".rstrip("0")) as server:
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


def answers(server: Served, prompt: Sequence[int], within_s: float) -> bool:
    """Tell whether the server answers a prompt in time."""
    with suppress(BenchError):
        return bool(server.generate(prompt, within_s=within_s))
    return False


def two_servers(stage: Stage) -> None:
    """A server with a small fraction lives on the cards while the same server is started with its own."""
    with stage.server("--mem-fraction-static", FIRST_FRACTION, run="first") as first:
        if not stage.until_over(first):
            raise BenchError(f"the first server ended\n{first.tail()}")
        stage.notes["first_mib"] = stage.cards.mib_by_title(set(group_members(first.pid)))
        stage.doctor()
        with stage.server() as second:
            stage.until_over(second)
        stage.notes["first_lived"] = first.returncode is None
    stage.timeline("first")


def stray_context(stage: Stage) -> None:
    """Rank 1 makes a CUDA context on GPU 0 before it takes its own."""
    with stage.server(sabotage="stray") as server:
        stage.until_ready(server)
        stage.notes["process_mib"] = stage.cards.mib_by_title(set(group_members(server.pid)))
        stage.doctor()


def experiment(*flags: str) -> Callable[[Stage], None]:
    """Return the play of a start that differs in these flags, which stand last and so are the ones that count."""

    def play(stage: Stage) -> None:
        healthy(stage, *flags, doctor=False)

    return play


FAILURES: Final = (
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
    Scenario("tenant-gpu5", f"another process holds {TENANT_GIB:.0f} GiB of GPU {STORY_GPU}", tenant_of_the_story,
             ("failed",), ("dist.init",), 40, STORY_GPU + 1),
    Scenario("oom-weights", f"tenants leave {LEFT_FOR_WEIGHTS_GIB:.0f} GiB on every card", weights_out_of_memory,
             ("failed",), ("weights.load",), 45, 1),
    Scenario("lowfrac", "the static budget is smaller than the weights", low_fraction, ("failed",),
             ("kv.profile",), 35),
    Scenario("leftover", "started while the schedulers of a killed launcher hold the cards", left_over, seconds=75),
    Scenario("oom-capture-size", "out of memory in the capture of the first size",
             capture_of_a_size_out_of_memory, ("failed",), ("graph.capture",), 40, 1),
    Scenario("oom-capture-later", "out of memory in the capture of the third size",
             capture_of_a_later_size_out_of_memory, ("failed",), ("graph.capture",), 35, 1),
    Scenario("twoservers", f"started while another server lives there with {FIRST_FRACTION} of the memory",
             two_servers, ("ready",), (None,), 70),
    Scenario("straycontext", "rank 1 has a CUDA context on GPU 0 too", stray_context, ("ready",), (None,), 40, 2),
    Scenario("oom-serve", "ready, then out of memory in a long prompt", served_out_of_memory, seconds=45, cards=1),
)  # fmt: skip

EXPERIMENTS: Final = tuple(
    Scenario(name, "car with " + " ".join(flags), experiment(*flags), ("ready",), (None,), 40, cards)
    for name, cards, flags in (
        ("tp1", 0, ("--tp", "1")),
        ("fraction80", 0, ("--mem-fraction-static", "0.8")),
        ("fp8kv", 0, ("--kv-cache-dtype", "fp8_e5m2")),
        ("maxbs64", 1, ("--cuda-graph-max-bs", "64")),
        ("requests", 0, ("--max-running-requests", "256")),
        ("context", 0, ("--context-length", "4096")),
        ("chunk2k", 0, ("--chunked-prefill-size", "2048")),
    )
)
"""Healthy starts that differ from `car` in one thing each."""
