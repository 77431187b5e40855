"""How a log and the events of its run agree: one line where they do, and each disagreement loudly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from sglang_probe.figures import GIB, counted, fraction, gib, number
from sglang_probe.report.layout import Width, field, paragraph
from sglang_probe.timeline.model import Disagreement, LogCheck, Run

MANY: Final = 12
"""Disagreements that are printed; the JSON has all."""


def log_head(run: Run, width: Width) -> list[Text]:
    """Return what the head of a run says of its log."""
    check = run.log_check
    if check is None:
        return []
    lines = field("log", _summary(check), width, "bold red" if check.disagreements else "")
    for one in check.disagreements[:MANY]:
        lines += paragraph(f"LOG: {disagreement(one)}", width, hanging=" " * 5, style="bold red")
    more = len(check.disagreements) - MANY
    if more > 0:
        lines += paragraph(f"LOG: and {counted(more, 'more disagreement')}", width, style="bold red")
    return lines


def log_gaps(run: Run) -> Iterator[str]:
    """Yield what differs between a log and the events of its run for a known reason."""
    for one in () if run.log_check is None else run.log_check.explained:
        yield f"{disagreement(one)}; {one.reason}"


def _summary(check: LogCheck) -> str:
    agree = f"the log agrees with the events in {number(check.agree)} of {counted(check.compared, 'figure')}"
    off = sum(one.what.startswith("argument ") for one in check.disagreements)
    named = f" and {number(check.arguments_compared - off)} of {counted(check.arguments_compared, 'argument')}"
    differ = "differs" if len(check.explained) == 1 else "differ"
    known = f"; {number(len(check.explained))} {differ} for a known reason" if check.explained else ""
    loud = f"; {counted(len(check.disagreements), 'DISAGREEMENT')}" if check.disagreements else ""
    return f"{agree}{named if check.arguments_compared else ''}{known}{loud}"


def disagreement(one: Disagreement) -> str:
    """Return a difference as a sentence: what, where, both values, and how far apart they are."""
    who = f"{one.label}: " if one.label is not None else ""
    apart = ""
    if one.unit == "bytes" and isinstance(one.difference, int):
        apart = f", {'+' if one.difference > 0 else ''}{gib(one.difference)} GiB"
    elif one.unit in {"tokens", "requests"} and isinstance(one.difference, int):
        apart = f", {one.difference:+,}"
    return f"{who}{one.what}: events {_shown(one, one.event)}, log {_shown(one, one.log)}{apart} ({_place(one.place)})"


def _place(place: str) -> str:
    """Return file:line without the directory, which stands in the head of the run."""
    return place.rsplit("/", 1)[-1]


def _shown(one: Disagreement, value: int | float | str | None) -> str:
    if one.unit == "bytes" and isinstance(value, int):
        # As the log prints it, and the events with a decimal more: both are read beside the text.
        return f"{value / GIB:.2f} GiB" if value == one.log else f"{gib(value)} GiB"
    if one.unit == "fraction" and isinstance(value, float):
        return fraction(value)
    return number(value) if isinstance(value, int) else str(value)
