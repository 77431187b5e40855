"""How a source of readings is asked: timed, guarded, and not again once it is slow or says that it has no such thing.

A source that takes over 100 ms is given up in this process, unless its thread stood in line for a CPU meanwhile: then
the host was slow, not the source. Linux counts that wait in /proc/thread-self/schedstat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sglang_probe.agent.health import Health, comes_from_signal_handler

SLOW_SOURCE_NS = 100_000_000

T = TypeVar("T")


class Sources:
    """What this process has learnt about its sources."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.slow: set[str] = set()
        self.lacking: set[str] = set()

    def visit(self) -> Visit:
        """Begin a round of questions."""
        return Visit(self)

    def lacks(self, source: str, reason: str, detail: str) -> None:
        """Note that a source does not exist here. Said once: it stays so, and every reading would repeat it."""
        if source not in self.lacking:
            self.lacking.add(source)
            self.health.degrade(source, reason, detail)


class Visit:
    """One round of questions, all from one thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._health = sources.health
        self._waited = cpu_wait_ns()

    def ask(self, source: str, question: Callable[[], T]) -> T | None:
        """Return the answer, or None where there is none: then the event says why."""
        if source in self._sources.lacking:
            return None
        if source in self._sources.slow:
            self._health.degrade(source, "slow_source", "not asked again in this process")
            return None
        began = time.perf_counter_ns()
        try:
            return question()
        except Exception as error:  # a poisoned context, a driver that went away: the phase goes on, the event too
            if comes_from_signal_handler(error):
                raise
            self._failed(source, error)
            return None
        finally:
            taken = time.perf_counter_ns() - began
            if taken > SLOW_SOURCE_NS:
                self._late(source, taken)

    def _failed(self, source: str, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        if "not supported" in said.lower().replace("_", " "):
            self._sources.lacks(source, "not_supported", said)
        else:
            self._health.degrade(source, "read_failed", said)

    def _late(self, source: str, taken: int) -> None:
        before, self._waited = self._waited, cpu_wait_ns()
        waited = 0 if before is None or self._waited is None else self._waited - before
        text = f"took {taken / 1e6:.0f} ms"
        if taken - waited > SLOW_SOURCE_NS:
            self._sources.slow.add(source)
            self._health.degrade(source, "slow_source", text)
        else:
            self._health.degrade(source, "preempted", f"{text}; its thread waited {waited / 1e6:.0f} ms for a CPU")


def cpu_wait_ns() -> int | None:
    """Return how long this thread has been ready to run without a CPU, since it began; None where nobody counts."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
