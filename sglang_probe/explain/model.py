"""What the findings about a run look like. Bytes are integers in bytes; what is unknown is None."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from sglang_probe.collect.report import ReadReport
from sglang_probe.timeline.model import RunOutcome

SCHEMA: Final = "explain/1.0"

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible"]
"""certain: arithmetic on what was measured; likely: one stated assumption; possible: one explanation among others."""
Basis = Literal["given", "measured", "scaled", "assumed", "unknown"]
"""Where a number comes from: asked for by the user, read in this run, computed from it by a stated rule, taken from a
stated rule of thumb, or nowhere."""


class Lever(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that the operator can do, and what it gives."""

    flag: str | None = None
    """The flag that does it; None where it is no flag (a process to end)."""
    value: Any = None
    """What to set it to; None for a flag without a value, or where only the direction is known."""
    gain_bytes: int | None = None
    """What it gives the tightest rank's budget (or free memory, of an out-of-memory); None: unknown."""
    gain_tokens: int | None = None
    enough: bool | None = None
    """Whether it alone would have let this run start; None: unknown."""
    basis: Basis = "measured"
    says: str
    """One sentence, with the rule where the gain is scaled."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one rule found."""

    rule: str
    severity: Severity
    ranks: tuple[str, ...] = ()
    """Labels; empty: the run as a whole."""
    says: str
    """One or two sentences with the figures in GiB."""
    numbers: dict[str, Any] = {}
    """The same figures, by their names in `timeline`."""
    formula: str | None = None
    """With the values put in."""
    lever: Lever | None = None
    """The first thing to do."""
    levers: tuple[Lever, ...] = ()
    """What else would help, most first."""
    notes: tuple[str, ...] = ()
    """What was checked and holds, or what is not known and what would have to be recorded to know it."""
    confidence: Confidence = "certain"
    doc: str = ""
    """Where the documentation explains the rule."""


class RunFindings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The findings about one run, the leading one first."""

    run_id: str
    launch: int
    outcome: RunOutcome
    failed_phase: str | None = None
    findings: tuple[Finding, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that was explained."""

    schema: str = SCHEMA
    runs: tuple[RunFindings, ...] = ()
    read: ReadReport
