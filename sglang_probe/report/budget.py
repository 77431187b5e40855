"""The KV budget of a worker: SGLang's formula, its values, and whether they reproduce SGLang's result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.explain.feasible import equals_minimum, minimum_of
from sglang_probe.figures import UNKNOWN, counted, fraction, gib, number
from sglang_probe.report.plain import printable
from sglang_probe.timeline.arithmetic import floor_binds, left_nothing, plain_slack
from sglang_probe.timeline.model import Budget, Kv, Worker

SAME_OWN_BYTES: Final = 1 << 20
"""A rank's own figure that differs by no more from the minimum over the ranks is not worth a line."""
LEAST_OFF: Final = 0.0001
"""A unit of the last decimal of a fraction that is computed."""
SAME_FRACTION: Final = 0.0001
"""SGLang prints its own with four decimals."""


def budget_lines(worker: Worker, *, alone: bool = False) -> list[str]:
    """Return the budget and the pools of one worker, a line each; `alone` says that its world has no other rank.

    Worked example: available 21.697 GiB, pre-load 93.999 GiB, fraction 0.55, no deduction:
    21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB -> no KV cache.
    """
    lines: list[str] = []
    if worker.budget is not None and _is_empty(worker.budget):
        lines.append(_not_computed(worker.budget))
    elif worker.budget is not None:
        lines += [
            *_formula(worker.budget, worker.kv),
            *_minimum(worker.budget),
            _verified(worker.budget),
            *_notes(worker, alone),
        ]
    if worker.kv is not None:
        lines += _kv(worker.kv)
    return lines


def _is_empty(budget: Budget) -> bool:
    return budget.available_bytes is None and budget.rest_bytes is None and budget.result is None


def _not_computed(budget: Budget) -> str:
    reason = printable(budget.verified_reason or f"kv.profile is {budget.state or 'not there'}")
    known = f"pre-load memory {_own(budget, 'pre_load_bytes')} GiB; " if budget.pre_load_bytes is not None else ""
    return f"{known}no budget was recorded: {reason}"


def _formula(budget: Budget, kv: Kv | None) -> Iterator[str]:
    slack = "slack" if floor_binds(budget) else "pre-load x (1 - mem_fraction_static)"
    yield f"rest = available - {slack}{_deductions(budget)[0]}"
    yield f"     = {worked(budget)}{_yields(budget, kv)}"


def worked(budget: Budget) -> str:
    """Return the values of the formula and its result: 21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB."""
    if floor_binds(budget):
        taken = _term(budget, "slack_bytes")
    else:
        used = budget.mem_fraction_static
        taken = f"{_term(budget, 'pre_load_bytes')} x (1 - {'unknown' if used is None else fraction(used)})"
    rest = _term(budget, "rest_bytes") + ("" if budget.rest_bytes is None else " GiB")
    return f"{_term(budget, 'available_bytes')} - {taken}{_deductions(budget)[1]} = {rest}"


def _term(budget: Budget, name: str) -> str:
    """Inside a formula a dash would read as a minus."""
    return "unknown" if getattr(budget, name) is None else _own(budget, name)


def _own(budget: Budget, name: str) -> str:
    """Return a term with as many decimals as it bears."""
    return gib(getattr(budget, name), round(budget.precisions.get(name, 0)))


def _deductions(budget: Budget) -> tuple[str, str]:
    if not budget.deductions:
        return " - deductions", f" - {gib(0, _least_precision(budget))}"
    names = "".join(f" - {printable(name)}" for name in budget.deductions)
    return names, "".join(f" - {gib(taken, _least_precision(budget))}" for taken in budget.deductions.values())


def _least_precision(budget: Budget) -> int:
    """Return how far off what was printed may be: a deduction has no precision of its own."""
    return round(budget.precisions.get("available_bytes", 0))


def _yields(budget: Budget, kv: Kv | None) -> str:
    """What the rest becomes: tokens, where the size of a token is known."""
    if left_nothing(budget):
        return "" if kv is not None and kv.tokens else " -> no KV cache"  # a draft's comes from its target
    if budget.result is None:
        return ""
    if budget.result_unit == "tokens":
        return f" -> {number(budget.result)} tokens"
    token = budget.bytes_per_token or (kv.bytes_per_token if kv else None)
    if token:
        return f" -> {number(budget.result // token)} tokens"
    return f" -> {number(budget.result)} B for the KV pool"


def _minimum(budget: Budget) -> Iterator[str]:
    if budget.minimum_viable_fraction is None:
        reason = budget.minimum_viable_fraction_reason or "a term of it is unknown"
        yield f"minimum viable fraction: {UNKNOWN} ({printable(reason)})"
    else:
        available = _own(budget, "available_bytes")
        if budget.deductions:
            available = f"({available}{_deductions(budget)[1]})"
        value = f" = {budget.minimum_viable_fraction:.4f}"
        if left_nothing(budget):  # then it is what the fraction must be at least
            value = equals_minimum(budget)
        off = budget.precisions.get("minimum_viable_fraction")
        is_computed = minimum_of(budget) == budget.minimum_viable_fraction
        value += f" +- {max(off, LEAST_OFF):.4f}" if off and is_computed else ""
        yield f"minimum viable fraction = 1 - {available} / {_own(budget, 'pre_load_bytes')}{value}"
    own, printed = minimum_of(budget), budget.minimum_viable_fraction_printed
    if printed is not None and (own is None or abs(own - printed) >= SAME_FRACTION):
        yield f"SGLang's own message names {fraction(printed)} as the minimum"


def _verified(budget: Budget) -> str:
    if budget.verified:
        how = "as far as the log's decimals tell" if budget.precisions else "exactly"
        return f"verified: the terms reproduce SGLang's own result {how}"
    reason = printable(budget.verified_reason or "the probe gave no reason")
    if budget.verified is None:
        return f"not verified: {reason}"
    return f"NOT VERIFIED: the terms do not reproduce SGLang's own result: {reason}"


def _notes(worker: Worker, alone: bool) -> Iterator[str]:
    budget = worker.budget or Budget()
    if floor_binds(budget):
        plain = gib(round(plain_slack(budget) or 0))
        yield f"slack is not pre-load x (1 - mem_fraction_static) = {plain} GiB: SGLang puts a floor under it"
    given, used = budget.mem_fraction_static_given, budget.mem_fraction_static
    if given is not None and used is not None and given != used:
        yield f"mem_fraction_static: {fraction(used)} in force, {fraction(given)} given"
    own = [
        f"{name} {_own(budget, term)}"
        for name, term, local, used_bytes in (
            ("pre-load", "pre_load_local_bytes", budget.pre_load_local_bytes, budget.pre_load_bytes),
            ("available", "available_local_bytes", budget.available_local_bytes, budget.available_bytes),
        )
        if local is not None and used_bytes is not None and abs(local - used_bytes) > SAME_OWN_BYTES
    ]
    if own and not alone:
        yield f"this rank's own: {', '.join(own)} GiB; the budget takes the minimum over the ranks"
    if worker.worker == "draft" and budget.rest_bytes is not None and budget.rest_bytes <= 0:
        yield "no failure: a draft takes its pool's size from the target"
    if budget.precision_bytes:
        yield f"read from a log: its terms are good to {gib(budget.precision_bytes)} GiB"
    if budget.pre_load_bytes is not None and budget.pre_load_reason is not None:
        yield f"pre-load memory: {printable(budget.pre_load_reason)}"
    if budget.mem_fraction_static_reason is not None:
        yield f"mem_fraction_static: {printable(budget.mem_fraction_static_reason)}"


def _kv(kv: Kv) -> Iterator[str]:
    if kv.tokens is None and kv.bytes is None and not kv.pools:
        yield "KV cache: none was recorded"
        return
    facts = [f"{number(kv.tokens)} tokens"]
    if kv.bytes is not None:
        facts.append(f"{gib(kv.bytes, kv.precision_bytes)} GiB")
    if kv.bytes_per_token is not None:
        off = f" +- {number(kv.bytes_per_token_precision)}" if kv.bytes_per_token_precision else ""
        facts.append(f"{number(kv.bytes_per_token)}{off} B a token")
    yield f"KV cache: {', '.join(facts)}{_limit(kv)}"
    for pool in kv.pools:
        what = "requests" if pool.kind == "request" else "tokens"
        parts = [f"{number(pool.tokens)} {what}", f"{gib(pool.bytes, pool.precision_bytes)} GiB"]
        parts += [printable(pool.dtype)] if pool.dtype else []
        parts += [f"page {number(pool.page_size)}"] if pool.page_size else []
        parts += [counted(pool.layers, "layer")] if pool.layers else []
        yield f"  pool {printable(pool.kind or pool.pool_class or UNKNOWN)}: {', '.join(parts)}"


def _limit(kv: Kv) -> str:
    if kv.limited_by is None:
        return f"; limit: {UNKNOWN} ({printable(kv.limited_by_reason)})" if kv.limited_by_reason else ""
    text = f"; limited by {printable(kv.limited_by)}"
    if kv.limited_by == "max_total_tokens" and kv.max_total_tokens_given is not None:
        text += f" ({number(kv.max_total_tokens_given)} given)"
    if kv.limited_by != "memory" and kv.profiled_tokens is not None:
        text += f"; memory alone would allow {number(kv.profiled_tokens)}"
    return text
