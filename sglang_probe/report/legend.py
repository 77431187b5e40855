"""What the words and signs of a report mean: only of those that occur in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import is_cpu, ranks_of

STATES: Final = {
    "died": "died: the process is gone, and the step never ended",
    "interrupted": "interrupted: the step never ended, and another rank failed or died (SGLang ends the peers of one)",
    "open": "open: the step has not ended, or its end is not recorded",
}


def legend(run: Run) -> Iterator[str]:
    """Return a line for each state without an end, and for figures that mislead who does not know."""
    steps = [step for process in run.processes for step in process.steps]
    states = {step.state for step in steps}
    yield from (said for state, said in STATES.items() if state in states)
    if any((step.cost_bytes or 0) < 0 for step in steps):
        yield "cost: negative means freed"
    if sum(map(is_cpu, ranks_of(run))) > 1:
        yield "the host's memory is shared: a cost includes what the other processes did meanwhile"
