"""What changed, what it cost, and what explains the outcome: the leading sentence first, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.diff.arithmetic import REST_OF_WAY
from sglang_probe.explain.diff.causes import part_name
from sglang_probe.explain.diff.figures import NO_FACT, UNRECORDED, what_differs
from sglang_probe.explain.diff.model import Arithmetic, Cause, Experiment, LedgerRow, RankDiff, Row
from sglang_probe.explain.diff.precision import AS_FAR, is_log
from sglang_probe.explain.diff.printed import of_the_whole
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.wording import change, set_to, shown_change, tenants_in_words, told
from sglang_probe.figures import gib, last_places, listed, of_last_places
from sglang_probe.timeline.ledger_rows import NAMES
from sglang_probe.timeline.model import Run

NOTHING: Final = "these two differ in nothing recorded"
NOTHING_COUNTS: Final = "these two differ in nothing that counts"
NO_FACT_COUNTS: Final = "nothing that counts differs in what they were made of"
"""Of two whose figures do differ."""
UNKNOWN: Final = frozenset({"unknown", "starting"})
"""Outcomes that are none."""
LOOK: Final = "a log lists no processes: look at who else was on the card (nvidia-smi), or run with the probe"
"""What to do where less was free before the weights, and a log is all that is known."""
MANY: Final = 4


class Facts(NamedTuple):
    """How much is known of what the sides were made of."""

    whole: bool
    """Nothing of a side was left out."""
    unknown: bool
    """No fact that a person sets is known of both."""


def sentences(
    runs: tuple[Run, Run],
    rows: Sequence[Row],
    ranks: Sequence[RankDiff],
    found: Arithmetic | None,
    experiment: Experiment | None,
    causes: Sequence[Cause],
    *,
    tightest: str | None,
    facts: Facts,
) -> Iterator[str]:
    """Yield all sentences of a pair; `tightest`: the candidate's."""
    whole, unknown = facts
    real = counted(rows)
    far = f", {AS_FAR}" if any(is_log(run) for run in runs) else ""
    nothing = NOTHING if whole and not any(row.differs for row in rows) else NOTHING_COUNTS
    figures = what_differs(runs)
    known = not any(run.outcome in UNKNOWN for run in runs)
    ended_alike = runs[0].outcome == runs[1].outcome
    if not real and not causes and not ranks and (ended_alike or not known):
        if unknown and figures:
            yield f"{UNRECORDED}{figures}"
            return
        yield f"{nothing}{far}" if known or ended_alike else f"{nothing}, as far as both were recorded"
        return
    leading = [cause.says for cause in causes if cause.explains or cause.part == "phase"]
    above = [*([experiment.says] if experiment else []), *leading]
    yield from above
    if far and any(cause.part == REST_OF_WAY and not cause.differences for cause in causes) and not experiment:
        yield LOOK
    named = _tenants_are_named(real, above)
    unnamed = [row for row in real if not (named and row.group == "tenants")]
    news = [row for row in unnamed if not any(_names(one, row) for one in above)]
    changed = listed([told(row).removesuffix(" changed") for row in news], MANY)
    if not real and unknown and not any(UNRECORDED in one for one in above):
        yield f"{UNRECORDED}{figures}"
    elif not real and not unknown:
        made = NO_FACT if nothing == NOTHING else NO_FACT_COUNTS
        yield f"{made}, and yet {'their memory is not the same' if ended_alike else 'they did not end alike'}"
    elif news:
        yield f"changed{' too' if len(news) < len(real) else ''}: {changed}"
    if found is not None and found.delta_bytes:
        yield from _cost(found, above)
    yield from _free(runs, ranks, tightest)
    if found is not None and causes and not leading and experiment is None:
        yield "no part alone explains it"


def _names(sentence: str, row: Row) -> bool:
    return told(row) in sentence or set_to(row) in sentence


def _tenants_are_named(rows: Sequence[Row], above: Sequence[str]) -> bool:
    """Say whether a sentence names those who came, or those who went."""
    tenants = [row for row in rows if row.group == "tenants"]
    words = [tenants_in_words(tenants, side) for side in (0, 1)]
    return any(one is not None and one in said for one in words for said in above)


def _cost(found: Arithmetic, above: Sequence[str]) -> Iterator[str]:
    """Yield what the budget changed by, and the parts that add up to it, where that is not said yet."""
    before, after = (gib(rest, found.precision_bytes) for rest in found.rest_bytes)
    if found.precision_bytes is not None:
        shown = shown_change(*found.rest_bytes, found.precision_bytes)
        yield f"rest {before} -> {after} GiB, {shown} GiB" if shown else f"rest {before} GiB: {AS_FAR}"
        return
    parts = of_the_whole(found)
    said = f"rest {before} -> {after} GiB, {change(*found.rest_bytes)} GiB"
    if len(parts) == 1 and any(f"rest {before} -> {after} GiB" in one for one in above):
        return
    told_parts = ", ".join(f"{part_name(part)} {figure} GiB" for part, figure in parts)
    yield f"{said}: {told_parts or 'no part of 0.001'}"


def _free(runs: tuple[Run, Run], ranks: Sequence[RankDiff], tightest: str | None) -> Iterator[str]:
    """Yield what the memory that is free at the end changed by on the tightest rank, and who has it now; where it is
    the same there, on the rank where it changed most."""
    if any(run.outcome != "ready" for run in runs):
        return
    changed = [(row, rank) for rank in ranks for row in rank.ledger if row.category == "free" and row.delta_bytes]
    if not changed:
        return
    free, rank = max(changed, key=lambda one: (one[1].label == tightest, abs(one[0].delta_bytes or 0)))
    before, after = free.bytes
    if free.precision_bytes is not None:
        known = f"{gib(before, free.precision_bytes)} -> {gib(after, free.precision_bytes)} GiB"
        shown = shown_change(before or 0, after or 0, free.precision_bytes)
        yield f"free at the end on {rank.label}: {f'{known}, {shown} GiB' if shown else AS_FAR}"
        return
    others = [row for row in rank.ledger if row.category != "free" and row.delta_bytes is not None]
    parts = list(_more_or_less(others, _units(free)))
    of_it = f": {', '.join(parts)}" if parts else ""
    amounts = f"{gib(before)} -> {gib(after)} GiB, {change(before or 0, after or 0)} GiB"
    yield f"free at the end on {rank.label}: {amounts}{of_it}"


def _more_or_less(rows: Sequence[LedgerRow], free: int) -> Iterator[str]:
    """Yield who has how much more or less: what they have more is what is less free, to the last decimal."""
    figures = sorted(((NAMES[row.category], _units(row)) for row in rows), key=lambda one: -abs(one[1]))
    shown = figures[:MANY]
    rest = -free - sum(count for _, count in shown)
    small = len(shown) == len(figures) and abs(rest) <= len(figures)
    for name, count in [*shown, *([] if small else [("all else", rest)])]:
        if count:
            yield f"{name} {of_last_places(abs(count))} GiB {'more' if count > 0 else 'less'}"
    if small and rest:
        yield f"{of_last_places(abs(rest))} of rounding"


def _units(row: LedgerRow) -> int:
    before, after = row.bytes
    return last_places(after or 0) - last_places(before or 0)
