"""A log checked against the events of the same run: what agrees, what differs for a known reason, what disagrees."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.timeline.log_model import Disagreement, LogCheck
from sglang_probe.timeline.logs.arguments import arguments_in, comparable, differing, said_in
from sglang_probe.timeline.logs.figures import Figure, figures_of
from sglang_probe.timeline.logs.same import Match
from sglang_probe.timeline.model import Run

_ENDED_BADLY = frozenset({"failed", "died"})


def checked(log: LogRun, run: Run, told: Run, found: Match) -> LogCheck:
    """Return what comes out when every figure, argument and outcome that both have is compared.

    `run` is of events, `told` is the log's own.
    """
    figures = list(figures_of(log, run))
    off = [figure for figure in figures if not figure.agrees]
    said, known = arguments_in(log) or {}, run.provenance.effective or {}
    # A node's own log has its node's arguments; those of the run are the first rank's.
    both = comparable(said, known)
    return LogCheck(
        files=log.files,
        reasons=found.reasons,
        offset_s=found.offset_s,
        compared=len(figures),
        agree=len(figures) - len(off),
        arguments_compared=len(both),
        explained=tuple(_of(figure) for figure in off if figure.reason is not None),
        disagreements=(
            *(_of(figure) for figure in off if figure.reason is None),
            *_arguments(log, run),
            *_outcome(log, run, told),
        ),
    )


def _of(figure: Figure) -> Disagreement:
    return Disagreement(
        what=figure.what,
        label=figure.label,
        unit=figure.unit,
        event=figure.event,
        log=figure.log,
        difference=figure.difference,
        precision=figure.precision,
        place=_place(figure.fact),
        reason=figure.reason,
    )


def _place(fact: Fact) -> str:
    return f"{fact.entry.file}:{fact.entry.line}"


def _arguments(log: LogRun, run: Run) -> Iterator[Disagreement]:
    fact, said, known = said_in(log), arguments_in(log), run.provenance.effective
    if fact is None or said is None or known is None:
        return
    for name in differing(said, known):
        yield Disagreement(
            what=f"argument {name}", unit="text", event=str(known[name]), log=str(said[name]), place=_place(fact)
        )


def _outcome(log: LogRun, run: Run, told: Run) -> Iterator[Disagreement]:
    """One says that it started, the other that it did not; or both that it failed, in different phases."""
    outcomes, phases = {run.outcome, told.outcome}, {run.failed_phase, told.failed_phase}
    if "ready" in outcomes and outcomes & _ENDED_BADLY:
        what, event, said = "outcome", str(run.outcome), str(told.outcome)
    elif outcomes == {"failed"} and len(phases) == 2 and None not in phases:
        what, event, said = "failed phase", str(run.failed_phase), str(told.failed_phase)
    else:
        return
    kinds = {"ready", "exception", "no_memory", "out_of_memory", "ended"}
    last = next((fact for fact in reversed(log.facts) if fact.kind in kinds), None)
    place = _place(last) if last is not None else f"{log.name}:{log.last_line}"
    yield Disagreement(what=what, unit="text", event=event, log=said, place=place)
