"""What a plan looks like. Bytes are integers in bytes; what is unknown is None, with the reason in `says`."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from sglang_probe.explain.model import Basis, Lever
from sglang_probe.timeline.model import RunOutcome
from sglang_probe.timeline.model import Source as RunSource

SCHEMA: Final = "plan/1.0"

Unit = Literal["bytes", "bytes a token", "tokens", "requests", "fraction"]


class CannotPlan(Exception):
    """The run does not say enough to plan from; the text says what is missing, and what to do."""


class NoBudget(CannotPlan):
    """The run failed before it had a budget."""


class Number(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One number of the plan, beside the same of the run."""

    name: str
    """As in `timeline`, where it is there."""
    unit: Unit
    run: int | float | None = None
    planned: int | float | None = None
    lowest: int | float | None = None
    """With `highest`, where the planned number is known only as a range: it is one end of it."""
    highest: int | float | None = None
    precision: int | float | None = None
    """How far off the planned one may be, where it comes from a log of two decimals; None: exact."""
    run_precision: int | float | None = None
    """The same of the run's."""
    basis: Basis
    """Of the planned one."""
    rule: str | None = None
    """The rule's name, where one was applied."""
    says: str | None = None
    """The rule in words; of an unknown number, why it is unknown."""


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A setting that is planned to differ from the run's."""

    flag: str
    run: Any = None
    """None: not known, or SGLang's default."""
    planned: Any = None


class Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that was asked of the plan."""

    flag: str
    wanted: int
    """Tokens, or bytes free."""
    planned: int | None = None
    spare: int | None = None
    """planned - wanted; negative: so much short."""
    holds: bool | None = None
    """None: unknown."""


class End(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One end of the fractions that do what is wished."""

    mem_fraction_static: float
    tokens: int | None = None
    free_bytes: int | None = None


class Against(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One number of the plan, beside what another run measured."""

    name: str
    unit: Unit
    predicted: int | float | None = None
    measured: int | float | None = None
    error: int | float | None = None
    """predicted - measured."""
    precision: int | float | None = None
    """How far off the error may be, where a number comes from a log; None: exact."""


class Source(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that numbers come from."""

    run_id: str
    launch: int
    outcome: RunOutcome
    failed_phase: str | None = None
    sglang_version: str | None = None
    source: RunSource = "events"
    rank: str
    """The rank whose budget is the tightest."""
    ranks: int
    """Ranks whose budget is known."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run's formula with other settings."""

    schema: str = SCHEMA
    run: Source
    like: Source | None = None
    stands_for: str | None = None
    """The run that was asked for, where it failed too early and `run`, given as --like, stands in for it."""
    changes: tuple[Change, ...] = ()
    wishes: tuple[Wish, ...] = ()
    lowest: End | None = None
    """The least fraction that does all that is wished, where there is one."""
    highest: End | None = None
    """The largest; None also where what stays free is unknown."""
    starts: bool | None = None
    """Whether it would start, by the arithmetic; None: not known."""
    says: tuple[str, ...] = ()
    """The answer, in a sentence or two."""
    formula: str | None = None
    """Of the run's own release, in terms; None where no event names it."""
    replays: bool | None = None
    """Whether the formula gives this run's own tokens from its own terms; None: the run had none."""
    numbers: tuple[Number, ...] = ()
    levers: tuple[Lever, ...] = ()
    """What would make room, where it does not hold."""
    assumptions: tuple[str, ...] = ()
    against: tuple[Against, ...] = ()
    other: Source | None = None
    """The run that it is compared with."""
    not_planned: tuple[str, ...] = ()
    """Flags in which that one differs and that no rule knows."""

    def number(self, name: str) -> Number | None:
        """Return the number of that name."""
        return next((one for one in self.numbers if one.name == name), None)
