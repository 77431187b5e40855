"""The main numbers of each side."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_probe.explain.diff.model import Side
from sglang_probe.explain.diff.names import names_of
from sglang_probe.explain.diff.precision import of_term
from sglang_probe.explain.diff.ranks import target_of
from sglang_probe.explain.feasible import minimum_of
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Budget, Process, Run, Step
from sglang_probe.timeline.processes import first_error, is_cpu, ranks_of


def sides_of(runs: Sequence[Run]) -> tuple[Side, ...]:
    """Return each run's main numbers."""
    return tuple(_side(name, run) for name, run in zip(names_of(len(runs)), runs, strict=True))


def _side(name: str, run: Run) -> Side:
    seat = Subject(run).tightest
    ranks = ranks_of(run)
    budget = Budget() if seat is None else seat.budget
    free = [last_free(rank) for rank in ranks]
    return Side(
        name=name,
        run_id=run.run_id,
        launch=run.launch,
        outcome=run.outcome,
        failed_phase=run.failed_phase,
        failed_label=run.failed_label,
        error=error_of(run),
        ready_s=run.ready_s,
        ranks=len(ranks),
        missing_ranks=len(run.missing),
        tightest=None if seat is None else seat.label,
        mem_fraction_static=budget.mem_fraction_static,
        pre_load_bytes=budget.pre_load_bytes,
        available_bytes=budget.available_bytes,
        rest_bytes=reached(budget, token_of(seat)),
        minimum_viable_fraction=minimum_of(budget),
        verified=budget.verified,
        tokens=tokens_of(run),
        bytes_per_token=token_of(seat),
        free_bytes=min((one for one in free if one is not None), default=None),
        precisions=_precisions(seat, ranks),
    )


def _precisions(seat: Seat | None, ranks: Sequence[Process]) -> dict[str, int]:
    """Return how far off the numbers of a run may be that was read from a log."""
    terms = ("pre_load_bytes", "available_bytes", "rest_bytes", "bytes_per_token")
    found = {} if seat is None else {term: of_term([seat.worker], term) for term in terms}
    ends = [step for rank in ranks if (step := last_read(rank)) is not None]
    found["free_bytes"] = max((step.precision_bytes or 0 for step in ends), default=0)
    return {name: precision for name, precision in found.items() if precision}


def error_of(run: Run) -> str | None:
    """Return the type and the first line of a run's failure."""
    return None if run.failure is None else first_error(run.failure)


def token_of(seat: Seat | None) -> int | None:
    """Return the bytes of a token of a seat's target."""
    return None if seat is None else token_bytes(seat.worker)


def tokens_of(run: Run) -> int | None:
    """Return the KV tokens of the target: the fewest over the ranks, which the server has."""
    caches = [worker.kv for rank in ranks_of(run) if (worker := target_of(rank)) is not None and worker.kv is not None]
    return min((cache.tokens for cache in caches if cache.tokens is not None), default=None)


def reached(budget: Budget, token: int | None) -> int | None:
    """Return the rest that SGLang itself came to: its result, where that is not what the terms give.

    Worked example: the terms give 2.897 GiB and SGLang returned 29,978 tokens of 70,272 B: it came to 1.962 GiB.
    """
    if budget.verified is not False or budget.result is None:
        return budget.rest_bytes
    if budget.result_unit == "tokens":
        return budget.result * token if token else budget.rest_bytes
    return budget.result


def last_free(rank: Process) -> int | None:
    """Return what was free at the last reading; on a CPU it is the host's and no number of the run."""
    step = last_read(rank)
    return None if step is None else step.free_bytes


def last_read(rank: Process) -> Step | None:
    """Return the step after which a card's free memory was read last."""
    if is_cpu(rank):
        return None
    ended = [step for step in rank.steps if step.depth == 0 and step.free_bytes is not None]
    known = ended or [step for step in rank.steps if step.free_bytes is not None]
    return known[-1] if known else None
