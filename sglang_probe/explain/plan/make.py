"""A plan from a run: its own formula with other settings, what is asked of it, and beside what another run measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.explain.plan.facts import Facts, facts_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes, changes, inputs_of, without_repeats
from sglang_probe.explain.plan.like import with_like
from sglang_probe.explain.plan.model import Against, Number, Plan
from sglang_probe.explain.plan.numbers import numbers_of, own_outlook
from sglang_probe.explain.plan.room import levers_of
from sglang_probe.explain.plan.wishes import resolve
from sglang_probe.explain.plan.words import assumptions, repeated, says
from sglang_probe.timeline.model import Run

NOTHING: Final = Wishes()
ASSUMED: Final = frozenset({"activations_bytes", "spare_bytes"})
"""Numbers that no run measures."""
ABSENT: Final = frozenset({"tenants_bytes", "draft_weights_bytes"})
"""Numbers that a run without them does not have."""


def plan(
    run: Run,
    inputs: Inputs | None = None,
    wishes: Wishes = NOTHING,
    *,
    like: Run | None = None,
    against: Run | None = None,
) -> Plan:
    """Plan another start of a run's server.

    Args:
        run: What is planned from.
        inputs: The settings that shall differ.
        wishes: What it shall hold; without a fraction among the inputs, the fraction is solved for.
        like: A run of the same model, for what this one never came to measure.
        against: A run whose settings are taken where `inputs` names none, and whose numbers stand beside the plan's.

    Raises:
        CannotPlan: the runs do not say enough; the text says what is missing.
    """
    facts = facts_of(run)
    if like is not None:
        facts = with_like(facts, facts_of(like))
    asked = inputs or Inputs()
    other = None if against is None else facts_of(against)
    if other is not None:
        theirs = inputs_of(facts, other)
        asked = theirs._replace(**{name: value for name, value in asked._asdict().items() if value is not None})
    kept = without_repeats(facts, asked)
    resolved = resolve(facts, kept, wishes)
    numbers = tuple(numbers_of(facts, resolved))
    notes = () if other is not None else repeated(asked, kept)
    return Plan(
        run=facts.source,
        like=facts.like,
        changes=changes(facts, kept),
        wishes=resolved.wishes,
        starts=resolved.starts,
        says=tuple(says(resolved, wishes)),
        formula=facts.formula,
        replays=replays(facts),
        numbers=numbers,
        levers=levers_of(facts, resolved, wishes) if resolved.holds is False else (),
        assumptions=(*notes, *assumptions(facts, resolved, numbers)),
        against=() if other is None else tuple(_against(numbers, other)),
        other=None if other is None else other.source,
    )


def replays(facts: Facts) -> bool | None:
    """Say whether the formula gives a run's own tokens; None where the run had none."""
    return None if facts.tokens is None else own_outlook(facts).tokens == facts.tokens


def _against(numbers: tuple[Number, ...], other: Facts) -> Iterator[Against]:
    """Put what the other run measured beside what was predicted."""
    theirs = {one.name: one.run for one in numbers_of(other, resolve(other, Inputs(), NOTHING))}
    for number in numbers:
        if number.name not in ASSUMED:
            yield _beside(number, theirs.get(number.name, 0 if number.name in ABSENT else None))


def _beside(number: Number, measured: int | float | None) -> Against:
    planned = number.planned
    error = None if planned is None or measured is None else planned - measured
    return Against(name=number.name, unit=number.unit, predicted=planned, measured=measured, error=error)
