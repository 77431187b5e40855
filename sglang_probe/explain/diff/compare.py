"""Runs in, their comparison out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.diff.alike import alike_cause
from sglang_probe.explain.diff.arithmetic import WHOLE, arithmetic_of
from sglang_probe.explain.diff.causes import budget_causes, turns
from sglang_probe.explain.diff.experiment import experiment_of
from sglang_probe.explain.diff.figures import UNRECORDED, nothing_to_compare
from sglang_probe.explain.diff.launchers import lack_of
from sglang_probe.explain.diff.model import Arithmetic, Cause, Diff, RankDiff, Row, Side
from sglang_probe.explain.diff.parting import parting, phase_cause
from sglang_probe.explain.diff.provenance import counted, provenance_rows
from sglang_probe.explain.diff.ranks import by_label, rank_diffs
from sglang_probe.explain.diff.sentences import Facts, sentences
from sglang_probe.explain.diff.sides import sides_of
from sglang_probe.explain.diff.tenants import on_a_cpu
from sglang_probe.explain.diff.values import NO_VARIABLES, SAME_ON_A_CARD
from sglang_probe.figures import counted as counted_noun
from sglang_probe.figures import listed
from sglang_probe.timeline.model import Run

PARTS_ON_A_CPU: Final = "what others took of that memory meanwhile is in the parts of the budget"
STARTED: Final = frozenset({"ready", "starting", "unknown"})
"""Outcomes that are no failure, as far as they are known."""
MANY: Final = 4


def compare(runs: Sequence[Run], *, everything: bool = False) -> Diff:
    """Return what the runs differ in, the first of them the baseline; `everything`: the facts that are the same too."""
    return _compared(runs, sides_of(runs), everything=everything)


def _compared(runs: Sequence[Run], sides: tuple[Side, ...], *, everything: bool = False) -> Diff:
    facts = provenance_rows(runs)
    rows = tuple(row for row in facts if row.differs or everything)
    ranks = rank_diffs(runs)
    notes = (*((UNRECORDED,) if nothing_to_compare(facts) else ()), *_notes(runs, sides))
    if len(runs) == 2:
        lack = lack_of(runs)
        whole = lack is None or all(row.why != lack.reason for row in facts)
        return _pair((runs[0], runs[1]), sides, rows, ranks, notes, whole=whole)
    causes: list[Cause] = []
    says: list[str] = []
    for side, run in zip(sides[1:], runs[1:], strict=True):
        pair = _compared((runs[0], run), (sides[0], side))
        says.append(f"{sides[0].name} -> {side.name}: {_of_the_pair(pair.says[0])}")
        causes += pair.causes
    return Diff(sides=sides, provenance=rows, ranks=ranks, causes=tuple(causes), says=tuple(says), notes=notes)


def _of_the_pair(sentence: str) -> str:
    return sentence.replace("these two differ", "differ")


def _pair(
    runs: tuple[Run, Run],
    sides: tuple[Side, ...],
    rows: tuple[Row, ...],
    ranks: tuple[RankDiff, ...],
    notes: tuple[str, ...],
    *,
    whole: bool,
) -> Diff:
    found = arithmetic_of(*runs)
    if found is not None and _only_noise(runs, found):
        found = None
    experiment = experiment_of(runs, sides, rows, ranks, found)
    causes = [] if found is None else list(budget_causes(found, rows, sides, runs))
    names, unknown = [side.name for side in sides], UNRECORDED in notes
    alike = alike_cause(runs, rows, names, unknown=unknown) if counted(rows) or ranks else None
    if alike is not None:
        causes = [alike, *causes]
    elif _budget_turned(found):
        where = None if _budget_decides(runs) else parting(runs, names)
        causes = causes if where is None else [*causes, where]
    elif not any(cause.explains for cause in causes) or not _budget_decides(runs):
        nothing = _ended_alike(runs) and not counted(rows) and not ranks
        phase = None if nothing else phase_cause(runs, rows, names, unknown=unknown)
        causes = causes if phase is None else [phase, *causes]
    return Diff(
        sides=sides,
        provenance=rows,
        ranks=ranks,
        arithmetic=found,
        experiment=experiment,
        causes=tuple(causes),
        says=tuple(
            sentences(
                runs, rows, ranks, found, experiment, causes,
                tightest=sides[1].tightest, facts=Facts(whole, unknown),
            )
        ),
        notes=(*notes, PARTS_ON_A_CPU) if found is not None and on_a_cpu(runs) else notes,
    )


def _only_noise(runs: Sequence[Run], found: Arithmetic) -> bool:
    """Say whether the budgets are the same, or a shared host's, and come out alike."""
    signs = {rest > 0 for rest in found.rest_bytes}
    resized = any(piece.part == "bytes_per_token" and piece.delta_tokens for piece in found.pieces)
    limited = any(piece.part == "other" and abs(piece.delta_tokens or 0) > 1 for piece in found.pieces)
    least = max(SAME_ON_A_CARD, (found.precision_bytes or 0) + 1)
    small = abs(found.delta_bytes) < least and not resized and not limited
    return len(signs) == 1 and (on_a_cpu(runs) or small)


def _ended_alike(runs: tuple[Run, Run]) -> bool:
    first, second = ((run.outcome, run.failed_phase, run.failed_label) for run in runs)
    return first == second


def _budget_turned(found: Arithmetic | None) -> bool:
    """Say whether a part of the budget is proven to have made the one fail there, and the other not."""
    return found is not None and any(turns(piece, found) for piece in found.pieces if piece.part != WHOLE)


def _budget_decides(runs: Sequence[Run]) -> bool:
    """Say whether whatever is known not to have started failed by its budget."""
    return all(run.outcome in STARTED or run.failed_phase == "kv.profile" for run in runs)


def _notes(runs: Sequence[Run], sides: Sequence[Side]) -> Iterator[str]:
    """Say what could not be compared."""
    lack = lack_of(runs)
    if lack is not None:
        yield lack.note
    tables = [by_label(run) for run in runs]
    for side, run, table in zip(sides, runs, tables, strict=True):
        alone = [name for name in table if not all(name in other for other in tables)]
        if alone:
            yield f"not compared, since not every side has them: {listed(alone, MANY)} of {side.name}"
        if run.missing:
            yield f"{counted_noun(len(run.missing), 'rank')} of {side.name} left no events"
        if run.unread_files:
            yield f"{counted_noun(run.unread_files, 'file')} of {side.name} were not given"
        if run.outcome in {"starting", "unknown"}:
            yield f"how {side.name} ended is not known: {run.outcome_reason or run.outcome}"
        if run.source == "log":
            yield f"{side.name} was read from a log: figures of two decimals, and no provenance but the log's"
    if {run.source == "log" for run in runs} == {True, False}:
        yield f"{NO_VARIABLES}, nor which flags were given: of arguments what is in effect is compared"
    if on_a_cpu(runs):
        yield "on a CPU the memory is a shared host's: costs are left out"
    yield from _inside(runs, sides)


def _inside(runs: Sequence[Run], sides: Sequence[Side]) -> Iterator[str]:
    """Say where the processes of one side are not all alike, and those of another are."""
    keys: list[set[str]] = [{difference.key for difference in run.provenance.differs} for run in runs]
    for side, own in zip(sides, keys, strict=True):
        more = sorted(key for key in own if not all(key in other for other in keys))
        if more:
            yield f"processes of {side.name} differ among themselves in {listed(more, MANY)}"
