"""The rule about a fraction in force that is not the one given.

Three values: given on the command line, resolved by SGLang's ServerArgs, and in force in the budget function. What a
result implies is a fourth: 1 - (available - deductions - tokens x bytes per token) / pre-load.
Known reductions: multimodal models x 0.95 (up to 0.4.3) or x 0.90 (0.4.6), and from 0.5.2 on by the size of the vision
tower; AITER with a context over 8192 x 0.85 (0.4.9 on). Source: SGLang's ModelRunner and ServerArgs of these releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.catalogue.formulas import FORMULAS
from sglang_probe.explain.formula import is_fraction, terms_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.rules.log_fraction import fraction_in_a_log, refuted
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.figures import fraction, gib, number
from sglang_probe.timeline.arithmetic import floor_binds, token_bytes
from sglang_probe.timeline.model import Budget
from sglang_probe.timeline.values import as_number

SAME: Final = 1e-9
WORTH: Final = 0.0005
"""What a result implies is not sharper than this, for tokens are cut to whole ones and pages."""
REDUCTIONS: Final = {
    0.95: "multimodal models, up to 0.4.3",
    0.9: "multimodal models, 0.4.6",
    0.85: "AITER with a context over 8192",
}


def fraction_in_force(subject: Subject) -> Iterator[Finding]:
    """The fraction that the budget function used, or that its result implies, is not the one given."""
    if subject.is_log:
        yield from fraction_in_a_log(subject)
        if refuted(subject) is not None:
            return
    seat = subject.tightest
    if seat is None or not is_fraction(seat.budget.mem_fraction_static):
        return
    resolved = as_number(subject.effective("mem_fraction_static"))
    implied = None if subject.is_log else _implied(seat)
    if implied is not None:
        yield _contradiction(subject, seat, implied)
        if contradicts(seat):
            return  # that a value was given says nothing: another was in force
    given = seat.budget.mem_fraction_static_given
    for known, where in ((given, "given on the command line"), (resolved, "in SGLang's resolved arguments")):
        if is_fraction(known) and abs(known - seat.budget.mem_fraction_static) > SAME:
            yield _other(subject, seat, known, where)
            return
    asked = subject.budget_failed or subject.run.outcome == "ready"
    if given is None and asked and not subject.is_log and subject.run.provenance.given is not None:
        yield _chosen(seat)


def _other(subject: Subject, seat: Seat, known: float, where: str) -> Finding:
    used = seat.budget.mem_fraction_static or 0.0
    ratio = used / known if known else 0.0
    reason = next((why for factor, why in REDUCTIONS.items() if abs(ratio - factor) < 0.001), None)
    why = f": x {ratio:.2f}, which SGLang does for {reason}" if reason else f": x {ratio:.3f}"
    drafted = " Speculative decoding is on, for which some releases lower it." if _speculates(subject) else ""
    terms, cost = terms_of(seat.budget), ""
    if terms is not None:
        cost = f" With {fraction(known)} the rest would have been {gib(terms._replace(fraction=known).rest_bytes)} GiB."
    return Finding(
        rule="fraction_in_force",
        severity="warning",
        ranks=(seat.label,),
        says=f"mem_fraction_static is {fraction(used)} in force and {fraction(known)} {where}{why}.{drafted}{cost}",
        numbers={"mem_fraction_static": used, "mem_fraction_static_given": known},
        formula=f"{fraction(used)} / {fraction(known)} = {ratio:.3f}",
        lever=None if reason is None else _by_the_factor(known, ratio),
        confidence="certain",
    )


def _by_the_factor(known: float, ratio: float) -> Lever:
    return Lever(
        flag="--mem-fraction-static",
        value=round(min(known / ratio, 0.999), 3),
        says="give more, by the same factor, to have in force what you gave",
    )


def contradicts(seat: Seat) -> bool:
    """Say whether the budget left nothing although its own terms leave something."""
    rest, result = seat.budget.rest_bytes, seat.budget.result
    return rest is not None and rest > 0 and result is not None and result <= 0


def _contradiction(subject: Subject, seat: Seat, implied: float) -> Finding:
    budget, used = seat.budget, seat.budget.mem_fraction_static
    minimum = budget.minimum_viable_fraction
    token = token_bytes(seat.worker)
    unit = "tokens" if budget.result_unit == "tokens" else "bytes"
    size = f" of {number(token)} B" if unit == "tokens" else ""
    cause = subject.failed and contradicts(seat)
    needed = f" The fraction in force must be above {minimum:.4f}." if cause and minimum is not None else ""
    return Finding(
        rule="fraction_in_force",
        severity="error" if cause else "warning",
        ranks=(seat.label,),
        says=f"With {fraction(used)} the budget would be {gib(budget.rest_bytes)} GiB, so the result,"
        f" {number(budget.result)}"
        f" {unit}{size}, contradicts that fraction: by the formula of this release it means {implied:.4f}. Another"
        " fraction"
        f" was in force, or the function has another term.{needed}",
        numbers={
            "mem_fraction_static_given": used,
            "implied_fraction": implied,
            "rest_bytes": budget.rest_bytes,
            "result": budget.result,
            "minimum_viable_fraction": minimum,
        },
        formula=f"1 - ({gib(budget.available_bytes)} - {_in_parentheses(_kept(budget, token))}) /"
        f" {gib(budget.pre_load_bytes)}"
        f" = {implied:.4f}{_minimum(budget)}",
        lever=Lever(
            says="`sglang-probe diff` with a run that worked names the flag, or the function whose body changed"
        ),
        notes=tuple(_doubts(seat)),
        confidence="likely",
    )


def _doubts(seat: Seat) -> Iterator[str]:
    if seat.budget.verified_reason:
        yield seat.budget.verified_reason
    profile = next((step for step in seat.process.steps if step.id == seat.budget.step), None)
    body = None if profile is None else profile.attributes.get("body")
    if body is not None and body not in FORMULAS:
        yield (
            f"the body of SGLang's budget function ({body}) is none of those that were read: it was changed, or is new"
        )


def _in_parentheses(count: int) -> str:
    return f"({gib(count)})" if count < 0 else gib(count)


def _minimum(budget: Budget) -> str:
    minimum = budget.minimum_viable_fraction
    if minimum is None or budget.deductions:
        return ""
    return (
        f"; minimum viable fraction = 1 - {gib(budget.available_bytes)} / {gib(budget.pre_load_bytes)} = {minimum:.4f}"
    )


def _chosen(seat: Seat) -> Finding:
    used = seat.budget.mem_fraction_static
    return Finding(
        rule="fraction_in_force",
        severity="info",
        says=f"--mem-fraction-static was not given: {fraction(used)} is what SGLang, or the program that started"
        " it, chose",
        numbers={"mem_fraction_static": used, "mem_fraction_static_given": None},
        confidence="certain",
    )


def _implied(seat: Seat) -> float | None:
    """Return the fraction that the result means, where the terms do not give that result."""
    budget, terms = seat.budget, terms_of(seat.budget)
    if budget.verified is not False or terms is None or budget.result is None or floor_binds(budget):
        return None
    token = token_bytes(seat.worker)
    if budget.result_unit == "tokens" and not token:
        return None
    implied = terms.fraction_for(_kept(budget, token))
    return implied if abs(implied - terms.fraction) > WORTH else None


def _kept(budget: Budget, token: int | None) -> int:
    return (budget.result or 0) * ((token or 1) if budget.result_unit == "tokens" else 1)


def _speculates(subject: Subject) -> bool:
    return subject.effective("speculative_algorithm") is not None
