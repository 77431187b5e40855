"""A plan from a run: its own formula with other settings, what is asked of it, and beside what another run measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.phrases import mib
from sglang_probe.explain.plan.beyond import beyond_of, said_of
from sglang_probe.explain.plan.early import failed_early, settings_in, with_own_tenants, without_tenants
from sglang_probe.explain.plan.facts import Facts, facts_of
from sglang_probe.explain.plan.forward import outlook
from sglang_probe.explain.plan.frame import Frame
from sglang_probe.explain.plan.inputs import Inputs, Wishes, changes, inputs_of, without_repeats
from sglang_probe.explain.plan.leaning import assumptions, repeated
from sglang_probe.explain.plan.like import nothing_borrowed, with_like
from sglang_probe.explain.plan.model import Against, CannotPlan, End, NoBudget, Number, Plan
from sglang_probe.explain.plan.numbers import numbers_of, own_outlook
from sglang_probe.explain.plan.precision import planned_from_logs
from sglang_probe.explain.plan.ran_out import ran_out_of
from sglang_probe.explain.plan.room import levers_of
from sglang_probe.explain.plan.wishes import resolve
from sglang_probe.explain.plan.words import ran_out_itself, says, stands_in
from sglang_probe.explain.subject import Subject
from sglang_probe.timeline.model import Run

NO_LEVER: Final = "None of the single changes that can be planned makes room for that."
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
    _refuse_both(wishes, against)

    def made(runs: Sequence[Run | None], fraction: float | None = None) -> Plan:
        if fraction is None:
            return _plan(inputs, wishes, runs[0] or run, runs[1], runs[2])
        fixed = (inputs or Inputs())._replace(mem_fraction_static=fraction)
        return _plan(fixed, NOTHING, runs[0] or run, runs[1], runs[2])

    return planned_from_logs(made, (run, like, against))


def _plan(inputs: Inputs | None, wishes: Wishes, run: Run, like: Run | None, against: Run | None) -> Plan:
    asked = inputs or Inputs()
    facts, told = _planned_from(run, like)
    other = None if against is None else facts_of_or_refuse(against)
    theirs = inputs_of(facts, other) if other is not None else told
    if theirs is not None:
        asked = theirs._replace(**{name: value for name, value in asked._asdict().items() if value is not None})
    kept = without_repeats(facts, asked)
    resolved = resolve(facts, kept, wishes)
    numbers = tuple(numbers_of(facts, resolved))
    notes = () if theirs is not None else tuple(repeated(facts, asked, kept))
    lent = nothing_borrowed(facts)
    given_back = None if told is None or inputs is None else without_tenants(told, inputs)
    stands = None if told is None else stands_in(run, facts, alone=given_back is not None)
    again = None if told is None or asked != told or resolved.starts is False else _ran_out(run)
    levers = levers_of(facts, resolved, wishes) if resolved.holds is False else ()
    nothing = NO_LEVER if resolved.holds is False and not levers else None
    answer = [one for one in (stands, *says(resolved, wishes), again, nothing, lent) if one is not None]
    planned = with_own_tenants(changes(facts, kept), given_back)
    beyond = () if against is None else beyond_of(run, against, planned)
    low, high = (_end(resolved.frame, one) for one in (resolved.ends or (None, None)))
    return Plan(
        run=facts.source,
        like=facts.like,
        stands_for=None if told is None else run.run_id,
        changes=planned,
        wishes=resolved.wishes,
        lowest=low,
        highest=high,
        starts=resolved.starts if again is None else False,
        says=tuple(answer),
        formula=facts.formula,
        replays=replays(facts),
        numbers=numbers,
        levers=levers,
        assumptions=(*notes, *([said_of(beyond)] if beyond else []), *assumptions(facts, resolved, numbers)),
        against=() if other is None else tuple(_against(numbers, other, lumped=facts.after.lumped)),
        other=None if other is None else other.source,
        not_planned=beyond,
    )


def _refuse_both(wishes: Wishes, against: Run | None) -> None:
    if against is not None and wishes.any:
        raise CannotPlan(
            "--against predicts a run as it was started, and --tokens, --concurrency or --free ask for another"
            " fraction; ask for one of the two"
        )


def _planned_from(run: Run, like: Run | None) -> tuple[Facts, Inputs | None]:
    """Return the facts to plan from; of a run that failed early those of `like`, and its own settings and tenants."""
    try:
        facts = facts_of(run)
    except NoBudget:
        if like is None:
            raise CannotPlan(
                f"{failed_early(run)}; plan from a run of the same server that got further, or name it with --like"
                " PATH: its memory is then taken, with this run's settings and what others hold on its cards"
            ) from None
        stand_in = facts_of_or_refuse(like)
        return stand_in, settings_in(run, stand_in)
    return (facts if like is None else with_like(facts, facts_of_or_refuse(like))), None


def _ran_out(run: Run) -> str | None:
    """Say that a run which another stands in for ran out of memory itself, where the plan of it would start."""
    found = ran_out_of(Subject(run))
    if found is None:
        return None
    by = "" if found.short is None else f", by {mib(found.short)}"
    return f"But {ran_out_itself(run.run_id, found)} with these settings{by}: the plan does not account for that."


def facts_of_or_refuse(run: Run) -> Facts:
    """Return the facts of a run that another is compared with.

    Raises:
        CannotPlan: it has no budget.
    """
    try:
        return facts_of(run)
    except NoBudget:
        raise CannotPlan(f"{failed_early(run)}; name a run of the same server that got further") from None


def _end(frame: Frame, at: float | None) -> End | None:
    if at is None:
        return None
    planned = outlook(frame, at)
    return End(mem_fraction_static=at, tokens=planned.tokens, free_bytes=planned.free)


def replays(facts: Facts) -> bool | None:
    """Say whether the formula gives a run's own tokens; None where the run had none."""
    return None if facts.tokens is None else own_outlook(facts).tokens == facts.tokens


def _against(numbers: tuple[Number, ...], other: Facts, *, lumped: bool) -> Iterator[Against]:
    """Put what the other run measured beside what was predicted."""
    theirs = {one.name: one.run for one in numbers_of(other, resolve(other, Inputs(), NOTHING))}
    for number in numbers:
        measured = theirs.get(number.name, 0 if number.name in ABSENT else None)
        if number.name == "else_after_bytes" and lumped != other.after.lumped:
            measured = None  # of a log the request pool and attention are in it
        if number.name not in ASSUMED:
            yield _beside(number, measured)


def _beside(number: Number, measured: int | float | None) -> Against:
    planned = number.planned
    error = None if planned is None or measured is None else planned - measured
    return Against(name=number.name, unit=number.unit, predicted=planned, measured=measured, error=error)
