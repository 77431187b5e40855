"""A plan's answer in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.explain.feasible import Interval
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.plan.advice import advised, interval_for
from sglang_probe.explain.plan.early import failed_early
from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.frame import Frame
from sglang_probe.explain.plan.head_room import above_bound, of_reserve
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.model import Wish
from sglang_probe.explain.plan.ran_out import RanOut
from sglang_probe.explain.plan.wishes import (
    HOW,
    Resolved,
    ends_of,
    unknown_free,
    unknown_tokens,
)
from sglang_probe.figures import counted, fraction, gib, number
from sglang_probe.timeline.model import Run


def stands_in(run: Run, facts: Facts, *, alone: bool) -> str:
    """Say that another run stands in for one that failed too early; `alone`: without the others on its cards."""
    return (
        f"{failed_early(run).removeprefix('run ')}. So this is a start of {facts.source.run_id} with the settings of"
        f" {run.run_id}{', without' if alone else ' and'} what others held on its cards."
    )


def says(resolved: Resolved, wishes: Wishes) -> Iterator[str]:
    """Return the answer."""
    planned = resolved.outlook
    impossible = resolved.rule == "solved" and resolved.holds is False
    yield from ("No fraction below 1 does what is wished; nearest to it:",) if impossible else ()
    yield from _unbalanced(planned)
    if planned.available is not None and planned.available < 0:
        yield (
            f"What is loaded before the KV cache needs {gib(-planned.available)} GiB more than there is: out of memory"
            " while the weights are loaded."
        )
    elif planned.tokens == 0:
        yield from _empty(resolved, wishes)
    elif planned.tokens is None:
        yield _without_tokens(resolved)
        yield from _ran_out(resolved) if planned.runs_out else ()
    else:
        yield from _tokens(resolved)
    for wish in resolved.wishes:
        yield _wish(wish, planned)
    if wishes.any and not impossible:
        yield from _between(resolved)
    yield from of_reserve(resolved)
    yield from _may_not_divide(resolved.frame)


def _unbalanced(planned: Outlook) -> Iterator[str]:
    if planned.unbalanced is not None:
        least, largest = map(gib, planned.unbalanced)
        yield (
            f"SGLang refuses to start on ranks so unlike: {least} to {largest} GiB would be free before the weights,"
            " and the least must be at least 0.9 of the most. Apart from that:"
        )


def _empty(resolved: Resolved, wishes: Wishes) -> Iterator[str]:
    planned = resolved.outlook
    at = f"At mem_fraction_static {fraction(planned.fraction)}"
    if planned.rest is not None and planned.rest > 0:
        yield f"{at} {gib(planned.rest)} GiB are left for the KV cache, less than a page: SGLang refuses to start."
    else:
        short = None if planned.rest is None else -planned.rest
        yield f"{at} the KV cache is empty by {gib(short)} GiB: SGLang refuses to start."
    if not wishes.any:
        yield from _room(resolved.frame, planned)


def _room(frame: Frame, planned: Outlook) -> Iterator[str]:
    """From which fraction on there is room, and which one to try."""
    ends = ends_of(frame, Wishes())
    exact = "" if planned.minimum is None else f" (just empty at {planned.minimum:.6f})"
    if ends is None:
        yield f"No fraction below 1 gives it room{exact}."
        return
    yield f"It has room from {fraction(ends.low)} on{exact}."
    interval = interval_for(frame, planned, Wishes())
    value = advised(frame, planned, Wishes())
    if interval is not None and interval.empty_by_bytes is not None and interval.highest is not None:
        starts = "" if value is None else f"{fraction(value)} would start, but serving may run out of memory: "
        yield (
            f"{starts}{interval.highest.whose} rule of thumb would set {gib(interval.highest.needs_bytes)} GiB aside"
            f" for graphs and activations, {gib(interval.empty_by_bytes)} more than any fraction leaves."
        )
    elif value is not None:
        yield f"Try {fraction(value)}{_why(interval)}."


def _why(interval: Interval | None) -> str:
    above = None if interval is None else above_bound(interval)
    return ", a little more than the least" if above is None else f": {above}"


def _without_tokens(resolved: Resolved) -> str:
    planned = resolved.outlook
    why = f"{unknown_tokens(resolved.frame)}; {HOW}"
    if planned.rest is None:
        return f"What the KV cache gets is unknown: {why}."
    at = fraction(planned.fraction)
    return f"{gib(planned.rest)} GiB for the KV cache at mem_fraction_static {at}; in tokens unknown: {why}."


def _tokens(resolved: Resolved) -> Iterator[str]:
    planned, frame = resolved.outlook, resolved.frame
    at_once = ""
    if planned.concurrency and planned.context is not None:
        requests = counted(planned.concurrency, "request")
        at_once = f", {requests} of {number(planned.context)} tokens at once"
    capped = (planned.profiled or 0) - (planned.tokens or 0) >= max(planned.page, 1)
    capped = capped and not (frame.facts.mean_token and frame.facts.source.source == "log")  # then it is rounding
    allowed = f" Memory alone would allow {number(planned.profiled)}." if capped else ""
    cache = f"{gib(planned.rest)} GiB of KV cache"
    if capped and planned.token and planned.tokens:
        cache = f"{gib(planned.tokens * planned.token)} of the {gib(planned.rest)} GiB that the KV cache could have"
    where = f"at mem_fraction_static {fraction(planned.fraction)}"
    least = "At least " if frame.inputs.tenants is not None and frame.facts.is_bound else ""
    yield f"{least}{counted(planned.tokens or 0, 'token')} {where}: {cache}{at_once}.{allowed}"
    if planned.tokens_most is not None:
        yield (
            f"Or up to {number(planned.tokens_most)} tokens: whether a token shrinks with --tp is not recorded (MLA"
            " keeps it whole on every rank); --kv-heads N, or --like with a run that started, tells."
        )
    if planned.context is not None and planned.tokens is not None and planned.tokens < planned.context:
        yield f"Not one request of the full context length fits: it may have {number(planned.context)} tokens."
    if planned.runs_out:
        yield from _ran_out(resolved)
    elif planned.free is None:
        yield f"What stays free after the start is unknown: {unknown_free(frame)}."
    elif planned.free >= 0:
        yield f"{least}{gib(planned.free)} GiB stay free after the start."
    else:
        yield _would_run_out(-planned.free)
    if planned.unexplained is not None and not planned.runs_out and frame.facts.ran_out is not None:
        yield (
            f"But {ran_out_itself(frame.facts.source.run_id, frame.facts.ran_out)}, where by the same sum"
            f" {gib(planned.unexplained)} GiB would have stayed free: something took them that the plan does not know"
            " (see `explain`)."
        )


def _would_run_out(short: int) -> str:
    return (
        "But it would run out of memory before it is ready: attention, graphs and what else comes after the pools"
        f" need {gib(short)} GiB more than is left."
    )


def _ran_out(resolved: Resolved) -> Iterator[str]:
    """What a run did that ran out of memory, and whether the plan's sum has it."""
    planned, facts = resolved.outlook, resolved.frame.facts
    if facts.ran_out is None:
        return
    by = "" if facts.ran_out.short is None else f", by {mib(facts.ran_out.short)}"
    same = resolved.frame.inputs == Inputs() and planned.fraction == facts.fraction
    yield f"But {ran_out_itself('this run', facts.ran_out)}{' with these settings' if same else ''}{by}."
    if planned.freed and planned.freed < 0:
        yield f"What is planned takes {mib(-planned.freed)} more."
    elif not same:
        yield f"What is planned frees {f'only {mib(planned.freed)}' if planned.freed else 'none of it'}."
    if planned.free is not None and planned.free < 0:
        yield f"By the plan's sum {gib(-planned.free)} GiB more are needed after the pools than is left."
    elif planned.unexplained is not None:
        yield (
            f"The plan does not account for that: by its sum {gib(planned.free)} GiB would stay free, so something took"
            " memory that it does not know (see `explain`)."
        )


def ran_out_itself(run: str, ran_out: RanOut) -> str:
    """Say that a run ran out of memory."""
    return f"{run} itself ran out of memory in {ran_out.phase}"


def _wish(wish: Wish, planned: Outlook) -> str:
    show = gib if wish.flag == "--free" else number
    unit = {"--tokens": "tokens", "--concurrency": "requests", "--free": "GiB"}[wish.flag]
    asked = f"{wish.flag} {show(wish.wanted)}"
    if wish.spare is None:
        return f"Whether {asked} holds is unknown."
    if wish.holds:
        return f"{asked} holds, with {show(wish.spare)} {unit} to spare."
    return f"{asked} does not hold: {show(-wish.spare)} {unit} short{_in_gib(wish, planned)}."


def _in_gib(wish: Wish, planned: Outlook) -> str:
    """What is short, in memory of the KV cache."""
    wanted = {"--tokens": wish.wanted, "--concurrency": wish.wanted * (planned.context or 0)}.get(wish.flag)
    if not wanted or not planned.token or planned.rest is None:
        return ""
    short = wanted * planned.token - planned.rest
    return f", so the cache is short by {gib(short)} GiB" if short > 0 else ""


def _between(resolved: Resolved) -> Iterator[str]:
    """Between which fractions the wishes hold, and which of them is planned."""
    ends, planned = resolved.ends, resolved.outlook
    if ends is None:
        yield "No fraction below 1 does it."
        return
    solved = resolved.rule == "solved"
    what = "Any fraction" if resolved.holds is not False else "It takes a fraction"
    low = f"{fraction(ends.low)} ({_end(outlook(resolved.frame, ends.low))})"
    if ends.high is None:
        yield f"{what} from {low} on{' does it' if resolved.holds is not False else ''}."
        return
    high = f"{fraction(ends.high)} ({_end(outlook(resolved.frame, ends.high))})"
    which = f"; planned here is the {'lowest' if planned.fraction == ends.low else 'highest'}" if solved else ""
    does = " does it" if resolved.holds is not False else ""
    if ends.low == ends.high:
        yield f"Only {low} does it."
    else:
        yield f"{what} from {low} to {high}{does}{which}."


def _end(planned: Outlook) -> str:
    tokens = "tokens unknown" if planned.tokens is None else f"{number(planned.tokens)} tokens"
    return tokens if planned.free is None else f"{tokens}, {gib(planned.free)} GiB free"


def _may_not_divide(frame: Frame) -> Iterator[str]:
    """A tp that splits nothing evenly: SGLang refuses heads and sizes that it does not divide."""
    tp, own, heads = frame.inputs.tp, frame.facts.tp, frame.inputs.kv_heads
    if tp is None:
        return
    if tp % own and own % tp:
        yield (
            f"--tp {tp} may not start: attention heads and weights have to divide by it, which this run, of tp {own},"
            " does not tell."
        )
    elif heads is not None and heads % tp and tp % heads:
        yield f"--tp {tp} may not start: {counted(heads, 'KV head')} neither divide by it nor it by them."
