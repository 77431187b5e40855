"""Two starts that fail in the same way: what differs between them is not what made either fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.diff.arithmetic import arithmetic_of
from sglang_probe.explain.diff.causes import part_name, subject_of, worked
from sglang_probe.explain.diff.figures import NO_FACT, UNRECORDED, what_differs
from sglang_probe.explain.diff.links import behind, name_of
from sglang_probe.explain.diff.model import Arithmetic, Cause, Piece, Row
from sglang_probe.explain.diff.names import called
from sglang_probe.explain.diff.printed import printed
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.shortage import pool_proof
from sglang_probe.explain.diff.sides import error_of
from sglang_probe.explain.diff.values import SAME_ON_A_CARD
from sglang_probe.explain.diff.wording import change, set_to
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib, listed
from sglang_probe.timeline.model import Run

LONGEST: Final = 100
"""Characters of an error that a sentence takes; the run's own report has all of it."""
MANY: Final = 3
_FIGURES: Final = re.compile(r"[\d.]+")
ENDED: Final = frozenset({"failed", "died"})


def fail_alike(runs: tuple[Run, Run]) -> bool:
    """Say whether both failed in one phase, by their budgets or with one error: its figures may differ."""
    first, second = runs
    if not {first.outcome, second.outcome} <= ENDED or first.failed_phase != second.failed_phase:
        return False
    by_budget = [Subject(run).budget_failed for run in runs]
    short = [shortage_of(Subject(run)) is not None for run in runs]
    for kind in (by_budget, short):
        if any(kind):
            return all(kind)
    errors = [_FIGURES.sub("", error_of(run) or "") for run in runs]
    return first.failed_phase is not None and first.outcome == second.outcome and errors[0] == errors[1]


def brief(error: str) -> str:
    """Return an error as a sentence takes it."""
    return error if len(error) <= LONGEST else f"{error[:LONGEST].rpartition(' ')[0]} ..."


def alike_cause(
    runs: tuple[Run, Run], rows: Sequence[Row], names: Sequence[str], *, unknown: bool = False
) -> Cause | None:
    """Return what is known of two failures that are alike, with the number; None where they are not, or where of
    several differences one explains one of them. `unknown`: no fact that a person sets is known of both."""
    if not fail_alike(runs):
        return None
    real = counted(rows)
    found = arithmetic_of(*runs) if Subject(runs[1]).budget_failed else None
    where = f"both fail alike in {runs[1].failed_phase}"
    if found is None:
        if len(_kinds(real)) > 1 and any(pool_proof(*pair, rows) for pair in (runs, runs[::-1])):
            return None
        error = error_of(runs[1])
        how = _shortages(runs) or (f" ({brief(error)})" if error else "")
        told = f"{UNRECORDED}{what_differs(runs)}" if unknown and not real else _what_differs(real)
        says = f"{where}{how}: {told}"
        return _cause(real, says, None if len(_kinds(real)) > 1 else False, names)
    rests = " and ".join(gib(rest) for rest in found.rest_bytes)
    turning = list(_turning(runs, rows, names))
    if turning:
        says = f"both fail in {runs[1].failed_phase}, with rest {rests} GiB, and not for one reason"
        return _cause(real, f"{says}: {'; '.join(turning)}", None, names)
    none = UNRECORDED if unknown else NO_FACT
    what = "what differs" if real else f"{none}{what_differs(runs)}; what does differ"
    changed = f"{what} changed the rest by {change(*found.rest_bytes)} GiB and is not the cause of either failure"
    named = _named(found, rows, real)
    return _cause(real, f"{where}, with rest {rests} GiB: {changed}{f': {named}' if named else ''}", False, names)


def _cause(real: Sequence[Row], says: str, explains: bool | None, names: Sequence[str]) -> Cause:
    differences = tuple(name_of(row) for row in real)
    return Cause(side=names[1], part="phase", differences=differences, explains=explains, says=says)


def _shortages(runs: tuple[Run, Run]) -> str:
    """Return by how much memory was short on both sides, where both say it."""
    found = [shortage_of(Subject(run)) for run in runs]
    known = [one.short_bytes for one in found if one is not None and one.short_bytes is not None]
    return f", {' and '.join(mib(one) for one in known)} short" if len(known) == len(runs) else ""


def _kinds(real: Sequence[Row]) -> set[tuple[str, str]]:
    """Return what differs: the others on all cards are one thing."""
    return {(row.group, "" if row.group == "tenants" else row.key) for row in real}


def _what_differs(real: Sequence[Row]) -> str:
    if not real:
        return NO_FACT
    named = listed([set_to(row) for row in real], MANY)
    if len(_kinds(real)) == 1:
        return f"what differs ({named}) is not the cause of either failure: it fails with it and without it"
    return f"what differs ({named}) turns neither into a start; whether one of it is behind a failure cannot be told"


def _named(found: Arithmetic, rows: Sequence[Row], real: Sequence[Row]) -> str:
    """Name what differs; where it is behind parts of the budget, with the arithmetic of those."""
    figures = printed(found)
    parts = [piece for piece in found.pieces if piece.part != "pre_load" and abs(piece.delta_bytes) >= SAME_ON_A_CARD]
    said = [
        f"{subject_of(piece, linked)}, {worked(piece, figures)}"
        for piece in parts
        if piece.part != "other" and (linked := behind(piece.part, rows))
    ]
    return listed(said or [set_to(row) for row in real], MANY)


def _turning(runs: tuple[Run, Run], rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """Say of each part that alone would have let one of the two start which it is."""
    for place, pair in ((1, runs), (0, (runs[1], runs[0]))):
        found = arithmetic_of(*pair)
        for piece in [] if found is None else found.pieces:
            if piece.part != "pre_load" and _lets_start(piece):
                linked = behind(piece.part, rows)
                what = subject_of(piece, linked)
                what = f"{part_name(piece.part)} ({what})" if linked and linked[0].group == "tenants" else what
                yield (
                    f"with {called(names[1 - place])}'s value of {what} {called(names[place])}'s rest would be"
                    f" {gib(piece.alone_rest_bytes)} GiB"
                )


def _lets_start(piece: Piece) -> bool:
    return abs(piece.delta_bytes) >= SAME_ON_A_CARD and (piece.alone_rest_bytes or 0) > 0
