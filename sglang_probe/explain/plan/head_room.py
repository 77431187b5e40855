"""Whether a plan leaves what serving needs: its head-room beside SGLang's own reserve, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.explain.feasible import Interval, at_most
from sglang_probe.explain.plan.advice import interval_for
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.inputs import Wishes
from sglang_probe.explain.plan.wishes import Resolved, has_tokens, most
from sglang_probe.figures import added, fraction, gib


def of_reserve(resolved: Resolved) -> Iterator[str]:
    """Say where less stays free than SGLang would reserve: of the fractions that do it, or of the planned one."""
    if resolved.outlook.runs_out:
        return  # it does not even start
    above = list(_above_reserve(resolved))
    yield from above or _short_of_reserve(resolved)
    if resolved.outlook.free is None and has_tokens(resolved.outlook):
        yield from _above_bound(resolved)


def above_bound(interval: Interval) -> str | None:
    """Say above which fraction too little is left; None: no bound is known."""
    if interval.highest is None:
        return None
    top, needs = at_most(interval.highest.fraction), gib(interval.highest.needs_bytes)
    if interval.highest.basis == "assumed":
        return (
            f"above {top} less is left than the {needs} GiB that {interval.highest.whose} rule of thumb sets aside"
            " for graphs and activations"
        )
    return f"above {top} less is left than the {needs} GiB that the start itself took after the KV pools"


def most_free(planned: Outlook) -> int | None:
    """Return the most that can stay free where what comes after the pools is not known: the slack, and what a cap
    leaves of the rest; None: not known."""
    if planned.slack is None or planned.rest is None or planned.tokens is None or planned.token is None:
        return None
    spare = planned.rest - planned.tokens * planned.token
    return planned.slack + (spare if spare >= planned.page * planned.token else 0)


def _above_bound(resolved: Resolved) -> Iterator[str]:
    """What stays free is unknown, but the fraction is above the one that `explain` would say."""
    planned, left = resolved.outlook, most_free(resolved.outlook)
    interval = interval_for(resolved.frame, planned, Wishes())
    if interval is None or interval.highest is None or left is None or left >= interval.highest.needs_bytes:
        return
    said = above_bound(interval)
    if said is not None and planned.fraction > interval.highest.fraction:
        yield f"{fraction(planned.fraction)} is tight: {said}."


def _above_reserve(resolved: Resolved) -> Iterator[str]:
    """From which of the fractions that do it on less stays free than SGLang's reserve for activations."""
    frame, ends = resolved.frame, resolved.ends
    if ends is None or ends.high is None:
        return
    low, high = outlook(frame, ends.low), outlook(frame, ends.high)
    reserve = low.activations
    if reserve is None or low.free is None or high.free is None or not high.free < reserve <= low.free:
        return
    last = most(frame, reserve)
    if last is not None:
        yield (
            f"Above {fraction(last)} less stays free than the {gib(reserve)} GiB that SGLang's own rule of thumb"
            " reserves for the activations of serving."
        )


def _short_of_reserve(resolved: Resolved) -> Iterator[str]:
    """Whether the plan itself keeps less free than that."""
    planned = resolved.outlook
    free, reserve = most_free(planned) if planned.free is None else planned.free, planned.activations
    if has_tokens(planned) and free is not None and reserve is not None and 0 <= free < reserve:
        most_ = "" if planned.free is not None else f"at most {gib(free)} GiB, what the KV cache leaves: "
        yield (
            f"What stays free is {most_}{added(reserve, -free)} GiB less than the {gib(reserve)} that SGLang's own rule"
            " of thumb reserves for the activations of serving: a large prefill may run out of memory."
        )
