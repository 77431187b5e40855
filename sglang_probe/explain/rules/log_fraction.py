"""The fraction in force where only a log tells of it: as SGLang's message prints it, or as its tokens mean it.

Worked example (DeepSeek-R1, one token 70,272 B): 21.73 GiB available of 188.32 before the weights, and SGLang profiled
-561,981 tokens, which are -36.78 GiB: 1 - (21.73 + 36.78) / 188.32 = 0.689. With 0.95 they would have been +12.31 GiB:
whatever was given, it was not in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sglang_probe.explain.implied import Implied, implied_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.phrases import on_ranks, signed
from sglang_probe.explain.subject import Subject, labels
from sglang_probe.figures import fraction, gib, number
from sglang_probe.timeline.model import Budget

_ARTEFACT: Final = re.compile(r"self\.(?:server_args\.)?mem_fraction_static=[\d.]*\d")
"""An f-string of some releases prints the expression beside its value."""


def fraction_in_a_log(subject: Subject) -> Iterator[Finding]:
    """The fraction in force, of a run that only a log tells of."""
    implied = refuted(subject)
    if implied is not None:
        yield _contradiction(subject, implied)
    said = "" if subject.run.failure is None else subject.run.failure.message or ""
    artefact = _ARTEFACT.search(said)
    budget = next((one for one in _budgets(subject) if one.mem_fraction_static_basis == "message"), None)
    if artefact is not None and budget is not None:
        yield Finding(
            rule="fraction_in_force",
            severity="info",
            says=f"The fraction in force was {fraction(budget.mem_fraction_static)}, read through the artefact"
            f" '{artefact[0]}' of SGLang's own message: it prints the expression beside the value.",
            numbers={"mem_fraction_static": budget.mem_fraction_static},
            confidence="certain",
        )


def refuted(subject: Subject) -> Implied | None:
    """Return what negative tokens mean, where no fraction is named or the one named would have left something."""
    implied = implied_of(subject) if subject.is_log else None
    if implied is None or implied.tokens > 0:
        return None
    named = implied.seat.budget.mem_fraction_static
    return implied if named is None or implied.budget(named) > 0 else None


def _budgets(subject: Subject) -> Iterator[Budget]:
    for process in subject.run.processes:
        yield from (worker.budget for worker in process.workers if worker.budget is not None)


def _contradiction(subject: Subject, implied: Implied) -> Finding:
    budget = implied.seat.budget
    named, minimum = budget.mem_fraction_static, budget.minimum_viable_fraction
    means, off = implied.fraction, implied.fraction_off
    result = f"{number(implied.tokens)} tokens of {number(implied.token.bytes)} B"
    who = on_ranks(subject, [one.process for one in subject.negative])
    if named is None:
        says = (
            f"SGLang profiled {result} {who}: that is an effective fraction of about {means:.3f}; the log names none."
        )
    else:
        says = (
            f"With {fraction(named)} the budget would be {signed(implied.budget(named))} GiB, so the result, {result}"
            f" {who}, contradicts it: it means an effective fraction of about {means:.3f}. Another fraction was in"
            " force, or the function has another term."
        )
    needed = "" if minimum is None else f" It must be above {minimum:.4f} for a single token."
    return Finding(
        rule="fraction_in_force",
        severity="error" if subject.failed else "warning",
        ranks=labels(one.process for one in subject.negative),
        says=says + needed,
        numbers={
            "mem_fraction_static_given": named,
            "implied_fraction": means,
            "implied_fraction_precision": off,
            "result": implied.tokens,
            "bytes_per_token": implied.token.bytes,
            "rest_bytes": implied.rest,
            "available_bytes": implied.available,
            "pre_load_bytes": implied.printed,
            "minimum_viable_fraction": minimum,
            "precision_bytes": implied.precision,
        },
        formula="; ".join(_formulas(implied, named, minimum)),
        lever=Lever(
            says="look at what lowers the fraction: `server_args=` in the whole log has it as SGLang resolved it;"
            " `diff` with a run that worked names the flag"
        ),
        notes=(
            f"a token takes {implied.token.says}",
            f"free before the weights is an estimate: left + taken by them, good to {gib(implied.precision)} GiB",
        ),
        confidence="likely",
    )


def _formulas(implied: Implied, named: float | None, minimum: float | None) -> Iterator[str]:
    available, printed = gib(implied.available), gib(implied.printed)
    if minimum is not None:
        yield f"minimum viable fraction = 1 - {available} / {printed} = {minimum:.4f}"
    if named is not None:
        yield f"budget = {available} - {printed} x {fraction(1 - named)} = {signed(implied.budget(named))} GiB"
    yield f"result = {number(implied.tokens)} x {number(implied.token.bytes)} B = {gib(implied.rest)} GiB"
    yield (
        f"effective fraction = 1 - ({available} - ({gib(implied.rest)})) / {printed} = {implied.fraction:.4f}"
        f" +- {implied.fraction_off:.4f}"
    )
