"""Ranks that change alike are told once, whatever they had before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sglang_probe.explain.diff.model import RankDiff
from sglang_probe.explain.diff.values import SAME_ON_A_CARD

MOST_KINDS: Final = 32
"""Kinds that are told apart; a rank that is none of them is only counted."""


class Change(NamedTuple):
    """One row: what it is about, what each side has, and what each has more than the first."""

    name: tuple[Any, ...]
    values: tuple[Any, ...]
    deltas: tuple[Any, ...]
    """The values themselves where they are no numbers."""
    in_bytes: bool


def _change(name: tuple[Any, ...], values: tuple[Any, ...], *, in_bytes: bool) -> Change:
    first = values[0]
    if not all(value is None or _is_number(value) for value in values):
        return Change(name, values, values, in_bytes)
    deltas = (value if value is None or first is None else value - first for value in values[1:])
    return Change(name, values, tuple(deltas), in_bytes)


@dataclass
class Kind:
    """Ranks that change alike: one of them stands for all."""

    rank: RankDiff
    """Whose values are shown."""
    changes: tuple[Change, ...]
    labels: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Those whose values are not that one's, though they change by the same."""


def kinds_of(ranks: Sequence[RankDiff], leading: AbstractSet[str | None]) -> tuple[list[Kind], int]:
    """Return the kinds of ranks in their order, and how many ranks are of none that is told apart. Ranks of `leading`
    stand for their kinds."""
    order = {rank.label: place for place, rank in enumerate(ranks)}
    kinds, left = _kinds(sorted(ranks, key=lambda rank: rank.label not in leading))
    for kind in kinds:
        kind.labels.sort(key=order.__getitem__)
    return sorted(kinds, key=lambda kind: order[kind.labels[0]]), left


def _kinds(ranks: Sequence[RankDiff]) -> tuple[list[Kind], int]:
    by_shape: dict[Any, list[Kind]] = {}
    kinds: list[Kind] = []
    left = 0
    for rank in ranks:
        changes = tuple(_changes(rank))
        alike = by_shape.setdefault(tuple((one.name, one.in_bytes) for one in changes), [])
        kind = next((kind for kind in alike if _same_changes(kind.changes, changes)), None)
        if kind is None and len(kinds) >= MOST_KINDS:
            left += 1
            continue
        if kind is None:
            kind = Kind(rank, changes)
            alike.append(kind)
            kinds.append(kind)
        kind.labels.append(rank.label)
        if not all(_near(one, other) for one, other in zip(kind.changes, changes, strict=True)):
            kind.others.append(rank.label)
    return kinds, left


def _changes(rank: RankDiff) -> Iterator[Change]:
    for step in rank.steps:
        key = ("step", step.phase, step.detail, step.worker, step.draft_index, step.occurrence, step.states)
        costs = zip(step.states, step.cost_bytes, strict=True)
        yield _change(key, tuple(cost if state == "ok" else None for state, cost in costs), in_bytes=True)
    for row in rank.ledger:
        yield _change(("ledger", row.category), row.bytes, in_bytes=True)
    for term in rank.budget:
        yield _change(("budget", term.term), term.values, in_bytes=_is_bytes(term.term))


def _is_bytes(term: str) -> bool:
    return term.endswith("_bytes") or term.startswith("deductions.")


def _same_changes(first: Sequence[Change], second: Sequence[Change]) -> bool:
    return all(_all_near(one.deltas, other.deltas, one.in_bytes) for one, other in zip(first, second, strict=True))


def _near(one: Change, other: Change) -> bool:
    return _all_near(one.values, other.values, one.in_bytes)


def _all_near(first: Sequence[Any], second: Sequence[Any], in_bytes: bool) -> bool:
    if first == second:
        return True
    if not in_bytes or None in first or None in second:
        return False
    return all(
        abs(one - other) < SAME_ON_A_CARD if _is_number(one) and _is_number(other) else one == other
        for one, other in zip(first, second, strict=True)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
