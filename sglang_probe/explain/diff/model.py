"""What a comparison of runs looks like. Bytes are integers in bytes; what is unknown is None.

Lists named `values`, `bytes`, `states` or `cost_bytes` have one entry a side, in the order in which the sides were
named. With two sides a delta is the second less the first (the candidate less the baseline); with more it is None.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from sglang_probe.timeline.model import RunOutcome

SCHEMA: Final = "diff/1.0"

Group = Literal[
    "run",
    "sglang",
    "functions",
    "arguments given",
    "arguments effective",
    "variables",
    "versions",
    "cards",
    "visible devices",
    "tenants",
    "machine",
]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)
"""In the order in which they are told."""


class Side(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One of the runs, and its main numbers."""

    name: str
    """baseline and candidate; A, B, C... where there are more than two."""
    run_id: str
    launch: int
    outcome: RunOutcome
    failed_phase: str | None = None
    failed_label: str | None = None
    error: str | None = None
    """Type and first line of its failure."""
    ready_s: float | None = None
    ranks: int = 0
    missing_ranks: int = 0
    tightest: str | None = None
    """Label of the rank whose target had the least memory available."""
    mem_fraction_static: float | None = None
    pre_load_bytes: int | None = None
    available_bytes: int | None = None
    rest_bytes: int | None = None
    """What SGLang itself came to, where its result differs from what the terms give."""
    minimum_viable_fraction: float | None = None
    verified: bool | None = None
    tokens: int | None = None
    """KV tokens of the target; the fewest over the ranks."""
    bytes_per_token: int | None = None
    free_bytes: int | None = None
    """Free at the last reading, on the rank that has least."""
    precisions: dict[str, int] = {}
    """Number of this side -> how far off it may be, of a run read from a log; one that is not here is exact."""


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact of provenance, as each side has it."""

    group: Group
    key: str
    values: tuple[Any, ...]
    effective: tuple[Any, ...] | None = None
    """Of a given argument: what SGLang made of it, where that differs too."""
    counts: bool = True
    """Whether it can be a cause."""
    differs: bool = True
    """False in a row that only `--all` shows: the sides are the same, differ by nature, or are not compared."""
    why: str | None = None
    """Why it does not count, or what it means."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step of a rank, as each side has it; None in `states` where a side has no such step."""

    phase: str
    detail: str | None = None
    worker: str | None = None
    draft_index: int | None = None
    occurrence: int = 0
    """The how manieth of its name on this rank, from 0."""
    depth: int = 0
    states: tuple[str | None, ...]
    cost_bytes: tuple[int | None, ...]
    delta_bytes: int | None = None
    precision_bytes: int | None = None
    """How far off the difference may be, where a side was read from a log; None: exact."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A category of a rank's ledger at its last reading."""

    category: str
    bytes: tuple[int | None, ...]
    delta_bytes: int | None = None
    precision_bytes: int | None = None


class TermRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A term of the target's budget, by its name in `timeline`."""

    term: str
    values: tuple[Any, ...]
    delta: float | int | None = None
    precision: int | None = None
    """How far off the difference may be, in the term's unit; None: exact."""


class RankDiff(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What differs on one rank."""

    label: str
    steps: tuple[StepRow, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    budget: tuple[TermRow, ...] = ()


class Piece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the difference of two budgets."""

    part: str
    of: str | None = None
    """The part that it is a part of: only those with None here re-add to the whole."""
    values: tuple[Any, Any] = (None, None)
    """The term itself on both sides: bytes, or a fraction."""
    delta_bytes: int = 0
    """What it changed the rest by."""
    delta_tokens: int | None = None
    alone_rest_bytes: int | None = None
    """The candidate's rest, were this part alone as in the baseline."""
    note: str | None = None
    precision_bytes: int | None = None
    """How far off `delta_bytes` may be; None: exact."""


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The difference of two budgets, part by part: the pieces with `of` None re-add to `delta_bytes` to the byte."""

    labels: tuple[str, str]
    """The tightest rank of each side."""
    rest_bytes: tuple[int, int]
    delta_bytes: int
    tokens: tuple[int | None, int | None] = (None, None)
    delta_tokens: int | None = None
    pieces: tuple[Piece, ...] = ()
    precision_bytes: int | None = None
    """How far off the difference of the rests may be, where a side was read from a log; None: exact."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What made a difference, the greatest first."""

    side: str
    """The side that it is told of, against the baseline."""
    part: str
    """A part of the budget, or `phase` for one that failed without the budget."""
    differences: tuple[str, ...] = ()
    """`group: key` of the rows of provenance behind it; empty: nothing recorded is."""
    delta_bytes: int | None = None
    share: float | None = None
    """Of the whole difference of the budgets."""
    explains: bool | None = None
    """Whether it alone turns the outcome, or is the whole difference; None: it cannot be told."""
    says: str


class Experiment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything the same but one thing, and what that did."""

    group: Group
    key: str
    values: tuple[Any, Any]
    category: str | None = None
    """The category of memory that it touched."""
    category_delta_bytes: int | None = None
    delta_tokens: int | None = None
    delta_free_bytes: int | None = None
    """On the candidate's tightest rank; on the fullest device where a side has no such rank."""
    delta_ready_s: float | None = None
    """Of one start each: how long a start takes varies by itself."""
    says: str


class Diff(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that was compared."""

    schema: str = SCHEMA
    sides: tuple[Side, ...]
    provenance: tuple[Row, ...] = ()
    ranks: tuple[RankDiff, ...] = ()
    arithmetic: Arithmetic | None = None
    experiment: Experiment | None = None
    causes: tuple[Cause, ...] = ()
    says: tuple[str, ...] = ()
    """What changed, what it cost, and what explains the outcome."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""
