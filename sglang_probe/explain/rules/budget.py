"""Rules about the KV budget: weights that exceed it, and what drafts and recurrent states take of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sglang_probe.explain.counterfactual import after_weights, given_back
from sglang_probe.explain.feasible import Interval, at_least, at_most, equals_minimum, interval_of
from sglang_probe.explain.levers import levers_of, real_weights
from sglang_probe.explain.log_tokens import bytes_of_token, seat_token
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.phrases import budget_formula, on_ranks
from sglang_probe.explain.rules.fraction import contradicts
from sglang_probe.explain.rules.log_fraction import refuted
from sglang_probe.explain.rules.tenants import cause_elsewhere
from sglang_probe.explain.subject import Seat, Subject, label, labels
from sglang_probe.figures import fraction, gib, number
from sglang_probe.timeline.model import Budget, Process

SAME_MINIMUM = 0.00005
"""SGLang prints its own minimum with four decimals."""


def weights_exceed_budget(subject: Subject) -> Iterator[Finding]:
    """The memory that was left after the weights is less than the slack: the static budget has no room for a token."""
    seat = subject.tightest
    if seat is None or not subject.budget_failed or contradicts(seat) or refuted(subject) is not None:
        return  # then the fraction in force is the question
    interval = interval_of(subject, seat, subject.wanted_tokens)
    elsewhere = cause_elsewhere(subject)
    levers = [] if elsewhere is not None else levers_of(subject, seat, interval)
    budget = seat.budget
    yield Finding(
        rule="weights_exceed_budget",
        severity="error",
        ranks=labels([one.process for one in subject.negative]),
        says=f"{_says(subject, seat)}"
        f" {_direction(interval) if elsewhere is None else f'It follows from the above: {elsewhere}.'}",
        numbers=_numbers(subject, seat, interval),
        formula=_formula(seat),
        lever=levers[0] if levers else None,
        levers=tuple(levers[1:]),
        notes=tuple(_notes(subject, seat, interval)),
        confidence="certain" if budget.verified and not _leans(interval) else "likely",
    )


def deductions(subject: Subject) -> Iterator[Finding]:
    """What is taken off the budget beside the target's weights: draft weights, mamba states, multimodal inputs."""
    seat = subject.tightest
    if seat is None or seat.budget.rest_bytes is None:
        return
    drafts = {label(one): size for one in subject.ranks if (size := _drafts_before(one))}
    parts = {"draft weights": drafts[seat.label]} if seat.label in drafts else {}
    parts |= dict(seat.budget.deductions)
    taken, outcome = sum(parts.values()), given_back(subject, after_weights(drafts))
    if not taken or outcome is None:
        return
    rest = outcome.rest_bytes + sum(seat.budget.deductions.values())
    cause = subject.budget_failed and rest > 0 >= seat.budget.rest_bytes
    shown = " + ".join(f"{gib(size)} {name}" for name, size in parts.items())
    verdict = "Without them this server would have started." if cause else ""
    if subject.budget_failed and not cause:
        verdict = f"They are not the cause: without them the budget would still be {gib(rest)} GiB."
    yield Finding(
        rule="draft_and_recurrent",
        severity="error" if cause else "info",
        ranks=(seat.label,) if subject.failed else (),
        says=f"Beside the target's weights {gib(taken)} GiB are taken before the KV cache. {verdict}".rstrip(),
        numbers={"deductions": parts, "rest_bytes": seat.budget.rest_bytes},
        formula=f"{shown} = {gib(taken)} GiB",
        lever=_without(rest - seat.budget.rest_bytes) if cause else None,
        confidence="certain" if outcome.sure else "likely",
    )


def _drafts_before(process: Process) -> int:
    """Return the draft weights that a rank had loaded when its budget was computed: from 0.5.14 on, all of them."""
    phases = [(step.phase, step.worker) for step in process.steps]  # in the order in which they began
    profile = next((place for place, (phase, _) in enumerate(phases) if phase == "kv.profile"), None)
    if profile is not None and ("weights.load", "draft") in phases[profile:]:
        return 0
    return sum(worker.weights_bytes or 0 for worker in process.workers if worker.worker == "draft")


def _without(taken: int) -> Lever:
    says = "leave speculative decoding off, or keep fewer states (--max-running-requests, --max-mamba-cache-size)"
    return Lever(flag="--speculative-algorithm", gain_bytes=taken, enough=True, says=says)


def _leans(interval: Interval | None) -> bool:
    """Say whether what is said leans on SGLang's rule of thumb: that no fraction works."""
    return interval is not None and interval.empty_by_bytes is not None and interval.lowest < 1


def _says(subject: Subject, seat: Seat) -> str:
    budget, worker = seat.budget, seat.worker
    weights = real_weights(worker.weights_bytes, worker.weights_torch_bytes)
    static, pre_load, available = budget.static_budget_bytes, budget.pre_load_bytes, budget.available_bytes
    who = on_ranks(subject, [one.process for one in subject.negative])
    if static is None and pre_load is not None and budget.mem_fraction_static is not None:
        static = round(pre_load * budget.mem_fraction_static)
    if static is None or pre_load is None or available is None or budget.rest_bytes is None:
        return f"The KV budget is {gib(budget.rest_bytes)} GiB {who}; a term of it is unknown."
    used = pre_load - available + sum(budget.deductions.values())
    of_which = "" if weights is None else f", weights {gib(weights)} of them"
    if weights and not float(gib(weights)):
        of_which = ", next to nothing of it weights"
    short = f"short by {gib(-budget.rest_bytes)} GiB" if budget.rest_bytes < 0 else "nothing is left"
    least = f" (the least is on {seat.label})" if 1 < len(subject.negative) and _differ(subject) else ""
    return (
        f"The static budget is {gib(static)} GiB ({fraction(budget.mem_fraction_static)} of the {gib(pre_load)}"
        " that were"
        f" free before the weights) and {gib(used)} were in use when the KV cache was sized{of_which}:"
        f" {short} {who}{least}."
    )


def _differ(subject: Subject) -> bool:
    return len({seat.available for seat in subject.negative}) > 1


def _direction(interval: Interval | None) -> str:
    """Say whether raising the fraction is right here."""
    if interval is None:
        return "Whether another fraction helps cannot be computed: a floor or an unknown term decides."
    lowest = at_least(interval.lowest)
    if interval.lowest >= 1:
        return f"No fraction helps: it would have to be above 1 ({interval.lowest:.4f})."
    top = interval.highest
    if interval.empty_by_bytes is not None and top is not None:
        return (
            f"{f'By {top.whose} rule of thumb no' if top.whose else 'No'} fraction works: it would have to be at"
            f" least {lowest}, and at most {at_most(top.fraction)} to leave room for what follows: empty by"
            f" {gib(interval.empty_by_bytes)} GiB."
        )
    by_rule = "" if top is None or not top.whose else f"by {top.whose} rule of thumb "
    bound = "" if top is None else f", and {by_rule}at most {at_most(top.fraction)}"
    return f"This is a start-up shortage: raise --mem-fraction-static; it must be at least {lowest}{bound}."


def _formula(seat: Seat) -> str:
    budget = seat.budget
    formula = budget_formula(seat)
    if budget.minimum_viable_fraction is None:
        return formula
    taken = "".join(f" - {gib(size)}" for size in budget.deductions.values())
    available = f"({gib(budget.available_bytes)}{taken})" if taken else gib(budget.available_bytes)
    return (
        f"{formula}; minimum viable fraction = 1 - {available} / {gib(budget.pre_load_bytes)}"
        f"{equals_minimum(budget)}"
    )


def _numbers(subject: Subject, seat: Seat, interval: Interval | None) -> dict[str, Any]:
    budget = seat.budget
    numbers: dict[str, Any] = {
        name: getattr(budget, name)
        for name in ("pre_load_bytes", "available_bytes", "mem_fraction_static", "static_budget_bytes", "slack_bytes",
                     "rest_bytes", "minimum_viable_fraction", "minimum_viable_fraction_printed", "verified")
    }  # fmt: skip
    if budget.precisions.get("rest_bytes"):
        numbers |= {"precision_bytes": budget.precisions["rest_bytes"]}
    numbers |= {"weights_bytes": seat.worker.weights_bytes, "bytes_per_token": bytes_of_token(subject, seat)}
    if interval is not None:
        top = interval.highest
        numbers |= {
            "lowest_fraction": interval.lowest,
            "lowest_fraction_tokens": interval.tokens,
            "highest_fraction": None if top is None else top.fraction,
            "highest_fraction_basis": None if top is None else top.basis,
            "needed_after_kv_bytes": None if top is None else top.needs_bytes,
            "empty_by_bytes": interval.empty_by_bytes,
        }
    return numbers


def _notes(subject: Subject, seat: Seat, interval: Interval | None) -> Iterator[str]:
    budget, guess = seat.budget, seat_token(subject, seat) if subject.is_log else None
    token = bytes_of_token(subject, seat)
    if interval is not None:
        room = f"{number(interval.tokens)} tokens just fit" if interval.tokens else "the cache is just empty"
        at = at_least(interval.lowest) if budget.precisions else f"{interval.lowest:.6f}"
        yield f"at {at} {room}"
        if interval.highest is None:
            yield (
                "the upper bound is not known: no graph was captured, and the arguments do not say what SGLang sets"
                " aside"
            )
        else:
            yield f"upper bound: {interval.highest.says}"
    if guess is not None:
        yield f"a token takes {guess.says}"
    elif token is None:
        yield (
            "the bytes of a token are not known: SGLang raised before it computed them; `diff` and `plan"
            " --like` take them from a run that started"
        )
    if budget.precisions.get("rest_bytes"):
        yield _good_to(budget)
    printed, own = budget.minimum_viable_fraction_printed, budget.minimum_viable_fraction
    if printed is not None and own is not None:
        by_lines = "by the printed lines " if budget.precisions else ""
        own_exact = not budget.precisions and abs(printed - own) <= SAME_MINIMUM
        is_same = f"{printed:.4f}" == at_least(own) or own_exact
        nearest = "" if f"{printed:.4f}" == at_least(own) else ", rounded to the nearest"
        verdict = f": the same{nearest}" if is_same else f", and {by_lines}it is {at_least(own)}"
        yield f"SGLang's own message names {printed:.4f} as the minimum{verdict}"
    if budget.verified:
        yield "verified: these terms reproduce SGLang's own result exactly"
    elif budget.verified_reason:
        yield f"not verified: {budget.verified_reason}"


def _good_to(budget: Budget) -> str:
    """Say how far off the sums of a log's figures may be, and what its pre-load memory is worth."""
    off, minimum = math.ceil(budget.precisions["rest_bytes"]), budget.precisions.get("minimum_viable_fraction")
    fraction_off = "" if minimum is None else f", the minimum viable fraction to {max(minimum, 0.0001):.4f}"
    why = "" if budget.pre_load_reason is None else f"; pre-load: {budget.pre_load_reason}"
    return f"read from two decimals: rest is good to {gib(off)} GiB{fraction_off}{why}"
