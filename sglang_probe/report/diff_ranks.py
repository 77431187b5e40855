"""Rank by rank: the phases, the categories of memory and the terms of the budget in which the sides differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.text import Text

from sglang_probe.explain.diff.model import Diff, RankDiff, StepRow, TermRow
from sglang_probe.explain.diff.wording import signed_gib
from sglang_probe.figures import UNKNOWN, counted, fraction, gib, listed, number
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.layout import paragraph
from sglang_probe.report.ledger import NAMES

TERMS: Final = {
    "pre_load_bytes": "pre-load memory",
    "available_bytes": "available",
    "slack_bytes": "slack",
    "rest_bytes": "rest",
    "mem_fraction_static": "fraction",
    "verified": "formula verified",
    "bytes_per_token": "bytes of a token",
    "tokens": "KV tokens",
    "limited_by": "limited by",
}
"""Terms that are printed; the JSON has the others too."""
INDENT: Final = "  "
NONE: Final = "none"
MANY: Final = 8


def ranks_lines(found: Diff, width: int) -> list[Text]:
    """Return a table for every kind of rank: those that differ alike are one."""
    lines = [Text("Phases and categories (GiB; what is not here is the same)", style="bold")] if found.ranks else []
    names = tuple(side.name for side in found.sides)
    for position, (labels, rank) in enumerate(_alike(found.ranks)):
        who = labels[0] if len(labels) == 1 else f"{counted(len(labels), 'rank')} alike: {listed(labels, MANY)}"
        lines += [Text()] if position else []
        lines += paragraph(who, width, INDENT)
        change = ("change",) if len(names) == 2 else ()
        rows = [*_steps(rank), *_ledger(rank), *_budget(rank)]
        if rows:
            lines += grid(Line("", (*names, *change), ""), rows, width, INDENT * 2)
        lines += _not_reached(rank, names, width)
    return lines


def _alike(ranks: Sequence[RankDiff]) -> list[tuple[list[str], RankDiff]]:
    """Return the ranks by what their tables show."""
    kinds: dict[Any, tuple[list[str], RankDiff]] = {}
    for rank in ranks:
        shown = (*_steps(rank), *_ledger(rank), *_budget(rank))
        kinds.setdefault(shown, ([], rank))[0].append(rank.label)
    return list(kinds.values())


def _steps(rank: RankDiff) -> Iterator[Line]:
    """Rows of the steps that all sides came to, and of those that one never built though it ended after them."""
    for row in rank.steps:
        if not _is_cut_off(row, rank):
            cells = [_step_cell(state, cost) for state, cost in zip(row.states, row.cost_bytes, strict=True)]
            yield Line(f"{' ' * row.depth}{_step(row)}", (*cells, *_change(row.delta_bytes, len(cells))))


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


def _step_cell(state: str | None, cost: int | None) -> str:
    if state is None:
        return NONE
    return gib(cost) if state == "ok" else state


def _not_reached(rank: RankDiff, names: Sequence[str], width: int) -> list[Text]:
    """Name the steps that a side did not come to; sides that lack the same ones stand together."""
    lacking: dict[str, list[str]] = {}
    for side, name in enumerate(names):
        steps = [_step(row) for row in rank.steps if row.states[side] is None and _is_cut_off(row, rank)]
        if steps:
            lacking.setdefault(listed(steps, MANY), []).append(name)
    said = [f"not reached by {listed(who, MANY)}: {steps}" for steps, who in lacking.items()]
    return [text for one in said for text in paragraph(one, width, INDENT * 2, INDENT * 3)]


def _change(delta: int | None, sides: int) -> tuple[str, ...]:
    """Return the column of changes, which a matrix does not have."""
    if sides != 2:
        return ()
    return (UNKNOWN if delta is None else signed_gib(delta).removesuffix(" GiB"),)


def _ledger(rank: RankDiff) -> Iterator[Line]:
    ended = _ended(rank)
    for row in rank.ledger:
        if any(over and not amount for amount, over in zip(row.bytes, ended, strict=False)):
            continue  # it never came to what this category is made of
        cells = [gib(amount) for amount in row.bytes]
        yield Line(f"last reading: {NAMES[row.category]}", (*cells, *_change(row.delta_bytes, len(cells))))


def _budget(rank: RankDiff) -> Iterator[Line]:
    for row in rank.budget:
        name = TERMS.get(row.term) or row.term.replace("deductions.", "deduction ")
        if None in row.values:  # a side that did not come to it, as the main numbers say
            continue
        if row.term in TERMS or row.term.startswith("deductions."):
            cells = tuple(_term(row, value) for value in row.values)
            yield Line(f"budget: {name}", (*cells, *_changed_term(row)))


def _term(row: TermRow, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if row.term in {"tokens", "bytes_per_token"}:
        return number(value)
    if isinstance(value, float):
        return fraction(value)
    return gib(value) if isinstance(value, int) else str(value)


def _changed_term(row: TermRow) -> tuple[str, ...]:
    if len(row.values) != 2:
        return ()
    if row.delta is None:
        return (UNKNOWN,)
    if row.term in {"tokens", "bytes_per_token"}:
        return (f"{row.delta:+,}",)
    if isinstance(row.delta, float):
        return (f"{'+' if row.delta > 0 else '-'}{fraction(abs(row.delta))}",)
    return _change(row.delta, 2)
