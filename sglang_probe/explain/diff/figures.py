"""Numbers that differ though no recorded fact does: what is unknown is not the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.precision import of_term
from sglang_probe.explain.diff.ranks import target_of
from sglang_probe.explain.diff.values import SAME_ON_A_CARD
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib, listed
from sglang_probe.timeline.model import Process, Run
from sglang_probe.timeline.processes import is_cpu, ranks_of, world_size

SETTINGS: Final = frozenset({"sglang", "arguments given", "arguments effective", "variables", "versions"})
"""Groups of facts that a person sets."""
UNRECORDED: Final = "no argument, version or variable is recorded on every side"
"""Said once, in the notes, of sides of which nothing is known that could be the same."""
NO_FACT: Final = "nothing recorded of what they were made of differs"
"""Of two whose figures do differ, and facts are recorded on both sides."""
MANY: Final = 6


def nothing_to_compare(rows: Sequence[Row]) -> bool:
    """Say whether no fact that a person sets is known of both sides; rows are all facts, the same ones too."""
    return not any(row.group in SETTINGS and None not in row.values for row in rows)


def what_differs(runs: tuple[Run, Run]) -> str:
    """Name what differs beside the facts: model class, ranks, weights, pre-load memory, outcome; empty where nothing.

    Worked example: `; what differs: the model class (Qwen2ForCausalLM -> DeepseekV4ForCausalLM), the number of ranks (8
    -> 1)`.
    """
    found = [f"{name} ({' -> '.join(values)})" for name, values in _differing(runs)]
    return f"; what differs: {listed(found, MANY)}" if found else ""


def _differing(runs: tuple[Run, Run]) -> Iterator[tuple[str, tuple[str, str]]]:
    found: list[tuple[str, list[str | None]]] = [
        ("the model class", [_classes(run) for run in runs]),
        ("the number of ranks", [str(world_size(run)) if ranks_of(run) else None for run in runs]),
    ]
    for name, values in found:
        before, after = values
        if before is not None and after is not None and before != after:
            yield name, (before, after)
    yield from _memory(runs)
    if {runs[0].outcome, runs[1].outcome} <= {"ready", "failed", "died"} and runs[0].outcome != runs[1].outcome:
        yield "the outcome", (runs[0].outcome, runs[1].outcome)


def _classes(run: Run) -> str | None:
    """Return the classes of the models; None where a process did not name one."""
    named = {worker.model_class for rank in ranks_of(run) for worker in rank.workers}
    loaded = {step.detail for rank in ranks_of(run) for step in rank.steps if step.phase == "weights.load"}
    known = sorted(str(one) for one in (named | loaded) - {None})
    return ", ".join(known) or None


def _memory(runs: tuple[Run, Run]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what weights took and what was free before them, on the rank that decides on each side; in GiB."""
    ranks = [_decides(run) for run in runs]
    if any(rank is None or is_cpu(rank) for rank in ranks):
        return
    workers = [None if rank is None else target_of(rank) for rank in ranks]
    known = [worker for worker in workers if worker is not None]
    if len(known) < len(runs):
        return
    weights: list[Any] = [worker.weights_bytes for worker in known]
    off = max(worker.weights_precision_bytes or 0 for worker in known)
    pre_load: list[Any] = [None if worker.budget is None else worker.budget.pre_load_bytes for worker in known]
    for name, (before, after), far in (
        ("weights", weights, 2 * off),
        ("pre-load memory", pre_load, of_term(known, "pre_load_bytes")),
    ):
        if before is not None and after is not None and abs(after - before) > max(far or 0, SAME_ON_A_CARD):
            yield name, (f"{gib(before, off)}", f"{gib(after, off)} GiB")


def _decides(run: Run) -> Process | None:
    seat = Subject(run).tightest
    return seat.process if seat is not None else next(iter(ranks_of(run)), None)
