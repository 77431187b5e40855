"""Rank by rank: the phases, the categories of memory and the terms of the budget in which the sides differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from rich.text import Text

from sglang_probe.explain.diff.model import Diff, RankDiff, StepRow, TermRow
from sglang_probe.explain.diff.wording import change, shown_change
from sglang_probe.figures import UNKNOWN, counted, fraction, gib, listed, number
from sglang_probe.report.diff_fold import Kind, kinds_of
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.layout import Width, paragraph
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.ledger_rows import NAMES

TERMS: Final = {
    "pre_load_bytes": "pre-load memory",
    "available_bytes": "available",
    "slack_bytes": "slack",
    "rest_bytes": "rest",
    "mem_fraction_static": "fraction, of 1",
    "verified": "formula verified",
    "bytes_per_token": "a token, in bytes",
    "tokens": "KV cache, in tokens",
    "limited_by": "limited by",
}
"""Terms that are printed; the JSON has the others too."""
TITLE: Final = "Phases and categories (GiB if no unit is named; what is not here is the same)"
INDENT: Final = "  "
NONE: Final = "none"
MANY: Final = 8
MOST_BLOCKS: Final = 8
"""Kinds of ranks that are printed; the JSON has all ranks."""


def ranks_lines(found: Diff, width: Width) -> list[Text]:
    """Return a table for every kind of rank: those that change alike are one."""
    lines = paragraph(TITLE, width, style="bold") if found.ranks else []
    names = tuple(side.name for side in found.sides)
    tightest = {side.tightest for side in found.sides}
    kinds, left = kinds_of(found.ranks, tightest)
    shown = told_kinds(kinds, tightest)
    for position, kind in enumerate(shown):
        lines += [Text()] if position else []
        lines += paragraph(who_changes(kind), width, INDENT)
        heading = ("change",) if len(names) == 2 else ()
        rows = list(rank_rows(kind.rank))
        if rows:
            lines += grid(Line("", (*names, *heading), ""), rows, width, INDENT * 2)
        lines += not_reached_lines(kind.rank, names, width)
    more = left + sum(len(kind.labels) for kind in kinds) - sum(len(kind.labels) for kind in shown)
    if more:
        lines += [Text(), *paragraph(f"and {counted(more, 'more rank')}: --format json has them", width, INDENT)]
    return lines


def told_kinds(kinds: Sequence[Kind], tightest: AbstractSet[str | None]) -> list[Kind]:
    """Return the kinds that are printed, in their order: those of the tightest ranks, and those of most ranks."""
    by_weight = sorted(kinds, key=lambda kind: (tightest.isdisjoint(kind.labels), -len(kind.labels)))
    chosen = {id(kind) for kind in by_weight[:MOST_BLOCKS]}
    return [kind for kind in kinds if id(kind) in chosen]


def who_changes(kind: Kind) -> str:
    """Name the ranks of a block, and those whose own values are others, though they change by the same."""
    if len(kind.labels) == 1:
        return kind.labels[0]
    who = f"{counted(len(kind.labels), 'rank')} alike: {named(kind.labels)}"
    if not kind.others:
        return who
    return f"{who}; the values are {kind.rank.label}'s, and others on {named(kind.others)}"


def rank_rows(rank: RankDiff) -> Iterator[Line]:
    """Yield a row for each step, category and term of the budget in which the sides differ."""
    yield from _steps(rank)
    yield from _ledger(rank)
    yield from _budget(rank)


def _steps(rank: RankDiff) -> Iterator[Line]:
    """Rows of the steps that all sides came to, and of those that one never built though it ended after them."""
    for row in rank.steps:
        if not _is_cut_off(row, rank):
            far = row.precision_bytes
            cells = [_step_cell(state, cost, far) for state, cost in zip(row.states, row.cost_bytes, strict=True)]
            ended = all(state == "ok" for state in row.states)
            if ended and _rounds_to_nothing(row.cost_bytes, far):
                continue
            changed = _change(row.cost_bytes if ended else (None, None), far)
            yield Line(f"{' ' * row.depth}{_step(row)}", (*cells, *changed))


def _is_cut_off(row: StepRow, rank: RankDiff) -> bool:
    """Say whether a side lacks a step for no other reason than that it had ended by then."""
    return any(state is None and over for state, over in zip(row.states, _ended(rank), strict=True))


def _ended(rank: RankDiff) -> list[bool]:
    """Say of each side whether a step of it did not end well: what follows in others it never came to."""
    sides = zip(*(row.states for row in rank.steps), strict=True)
    return [any(state not in {"ok", None} for state in states) for states in sides]


def _step(row: StepRow) -> str:
    name = f"{row.phase} {row.detail}" if row.detail else row.phase
    again = f" ({row.occurrence + 1})" if row.occurrence else ""
    draft = "" if row.worker != "draft" else ", draft" if row.draft_index is None else f", draft {row.draft_index}"
    return f"{name}{draft}{again}"


def _step_cell(state: str | None, cost: int | None, precision: int | None) -> str:
    if state is None:
        return NONE
    return gib(cost, precision) if state == "ok" else state


def not_reached_lines(rank: RankDiff, names: Sequence[str], width: Width) -> list[Text]:
    """Name the steps that a side did not come to; sides that lack the same ones stand together."""
    lacking: dict[str, list[str]] = {}
    for side, name in enumerate(names):
        steps = [_step(row) for row in rank.steps if row.states[side] is None and _is_cut_off(row, rank)]
        if steps:
            lacking.setdefault(listed(steps, MANY), []).append(name)
    said = [f"not reached by {listed(who, MANY)}: {steps}" for steps, who in lacking.items()]
    return [text for one in said for text in paragraph(one, width, INDENT * 2, INDENT * 3)]


def _change(amounts: Sequence[int | None], precision: int | None) -> tuple[str, ...]:
    """Return the column of changes, which a matrix does not have: as it comes out of the figures beside it."""
    if len(amounts) != 2:
        return ()
    before, after = amounts
    return (UNKNOWN if before is None or after is None else change(before, after, precision),)


def _rounds_to_nothing(amounts: Sequence[int | None], precision: int | None) -> bool:
    """Say whether two figures of a log are the same at the decimals that they have."""
    if len(amounts) != 2 or not precision:
        return False
    before, after = amounts
    return before is not None and after is not None and shown_change(before, after, precision) is None


def _ledger(rank: RankDiff) -> Iterator[Line]:
    ended = _ended(rank)
    for row in rank.ledger:
        if _rounds_to_nothing(row.bytes, row.precision_bytes):
            continue
        if any(over and not amount for amount, over in zip(row.bytes, ended, strict=False)):
            continue  # it never came to what this category is made of
        cells = [gib(amount, row.precision_bytes) for amount in row.bytes]
        yield Line(f"last reading: {NAMES[row.category]}", (*cells, *_change(row.bytes, row.precision_bytes)))


def _budget(rank: RankDiff) -> Iterator[Line]:
    for row in rank.budget:
        name = TERMS.get(row.term) or row.term.replace("deductions.", "deduction ")
        if None in row.values:  # a side that did not come to it, as the main numbers say
            continue
        if row.term.endswith("_bytes") and _rounds_to_nothing(row.values, row.precision):
            continue
        if row.term in TERMS or row.term.startswith("deductions."):
            cells = tuple(_term(row, value) for value in row.values)
            yield Line(f"budget: {name}", (*cells, *_changed_term(row)))


def _term(row: TermRow, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if row.term in {"tokens", "bytes_per_token"}:
        return number(value)
    if isinstance(value, float):
        return fraction(value)
    return gib(value, row.precision) if isinstance(value, int) else str(value)


def _changed_term(row: TermRow) -> tuple[str, ...]:
    if len(row.values) != 2:
        return ()
    if row.delta is None:
        return (UNKNOWN,)
    if row.term in {"tokens", "bytes_per_token"}:
        return (f"{row.delta:+,}{f' +- {row.precision:,}' if row.precision else ''}",)
    if isinstance(row.delta, float):
        before, after = (round(value, 6) for value in row.values)
        return (f"{'+' if after > before else '-'}{fraction(abs(after - before))}",)
    return _change(row.values, row.precision)
