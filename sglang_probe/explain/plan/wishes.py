"""Planning backwards: of all fractions with four decimals, the one that just does what is wished.

Tokens never fall and free memory never rises with the fraction, so both are found by halving; planning forwards with
the fraction that is found gives what was asked, because it is the same function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook, outlook
from sglang_probe.explain.plan.frame import Frame, fraction_of, frame_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.model import CannotPlan, Wish

GRID: Final = 10_000
"""A fraction has four decimals: on 140 GiB a step of the last one is 14 MiB."""
HOW: Final = "give --token-bytes N, or --like PATH with a run of the same server that started"


class Ends(NamedTuple):
    """The least and the largest fraction at which something holds."""

    low: float
    high: float | None
    """None: what stays free is not known."""

    def nearest(self, tried: float) -> float:
        """Return the fraction among them that is nearest to one."""
        return max(tried, self.low) if self.high is None else min(max(tried, self.low), self.high)


class Resolved(NamedTuple):
    """A start at the fraction that was given, kept or solved for."""

    frame: Frame
    outlook: Outlook
    rule: str | None
    """Where the fraction comes from, if it is not the run's own or given."""
    wishes: tuple[Wish, ...]
    starts: bool | None
    ends: Ends | None = None
    """Between which fractions all that is wished holds; None: at none, or nothing was wished."""

    @property
    def holds(self) -> bool | None:
        """Whether it starts and every wish holds; None: not known."""
        told = [self.starts, *(wish.holds for wish in self.wishes)]
        return False if False in told else None if None in told else True


def resolve(facts: Facts, inputs: Inputs, wishes: Wishes) -> Resolved:
    """Return the start that is planned.

    Raises:
        CannotPlan: what is wished for hangs on a number that is not known.
    """
    frame = frame_of(facts, inputs)
    fraction, rule = fraction_of(facts, inputs)
    if wishes.any and inputs.mem_fraction_static is None:
        fraction, rule = solved(frame, wishes), "solved"
    planned = outlook(frame, fraction)
    ends = ends_of(frame, wishes) if wishes.any else None
    return Resolved(frame, planned, rule, tuple(_wishes(planned, wishes)), starts(planned), ends)


def starts(planned: Outlook) -> bool | None:
    """Say whether a start has room for a token, and for what comes after its pools."""
    if planned.unbalanced is not None or planned.tokens == 0 or (planned.free is not None and planned.free < 0):
        return False
    if planned.runs_out:
        return False
    return True if planned.tokens and planned.free is not None and planned.unexplained is None else None


def least(frame: Frame, holds: Callable[[Outlook], bool]) -> float | None:
    """Return the least fraction at which something holds that more fraction never undoes; None: none below 1."""
    found = bisect_left(range(1, GRID), True, key=lambda step: holds(outlook(frame, step / GRID))) + 1
    return found / GRID if found < GRID else None


def most(frame: Frame, free: int) -> float | None:
    """Return the largest fraction that keeps `free` bytes free and has a token; None: none does."""
    first = least(frame, has_tokens)
    if first is None or (outlook(frame, first).free is None and frame.facts.ran_out is None):
        return None
    steps = range(round(first * GRID), GRID)
    found = bisect_left(steps, True, key=lambda step: _is_too_full(outlook(frame, step / GRID), free))
    return steps[found - 1] / GRID if found else None


def _is_too_full(planned: Outlook, free: int) -> bool:
    return bool(planned.runs_out) or (planned.free is not None and planned.free < free)


def ends_of(frame: Frame, wishes: Wishes) -> Ends | None:
    """Return between which fractions a start has a token and all that is wished; None: at none."""
    low = least(frame, lambda planned: has_tokens(planned) and _does(planned, wishes))
    if low is None:
        return None
    if outlook(frame, low).free is None and outlook(frame, low).runs_out is None:
        return Ends(low, None)
    high = most(frame, max(wishes.free_bytes or 0, 0))
    return None if high is None or high < low else Ends(low, high)


def fraction_for(frame: Frame, wishes: Wishes, tried: float) -> float | None:
    """Return a fraction at which all of it holds, the nearest to the one that was tried; None: none does."""
    ends = ends_of(frame, wishes)
    if ends is None:
        return None
    return ends.low if ends.high is None else ends.nearest(tried)


def has_tokens(planned: Outlook) -> bool:
    """Say whether there is a KV cache at all."""
    return bool(planned.tokens) or (planned.tokens is None and (planned.rest or 0) > 0)


def solved(frame: Frame, wishes: Wishes) -> float:
    """Return the fraction that just does what is wished, or where none does the nearest to it.

    Raises:
        CannotPlan: what is wished for hangs on a number that is not known.
    """
    highest = (GRID - 1) / GRID
    best = outlook(frame, highest)
    if wishes.tokens is not None or wishes.concurrency is not None:
        if best.tokens is None:
            raise CannotPlan(f"{unknown_tokens(frame)}; {HOW}")
        if wishes.concurrency is not None and best.concurrency is None:
            raise CannotPlan("the context length was not recorded, which --concurrency needs; give --context-length")
        found = least(frame, lambda planned: _does(planned, wishes))
        return found or most(frame, max(wishes.free_bytes or 0, 0)) or highest  # else the best that there is
    lowest = least(frame, has_tokens)
    if lowest is None:
        return highest
    if outlook(frame, lowest).free is None:
        raise CannotPlan(f"what is free at the end cannot be said: {unknown_free(frame)}; {HOW}")
    return most(frame, wishes.free_bytes or 0) or lowest


def _does(planned: Outlook, wishes: Wishes) -> bool:
    if wishes.tokens is None and wishes.concurrency is None:
        return True
    return (planned.tokens or 0) >= (wishes.tokens or 0) and (planned.concurrency or 0) >= (wishes.concurrency or 0)


def unknown_tokens(frame: Frame) -> str:
    """Say why the number of tokens is not known."""
    if frame.available is None:
        return "what is available cannot be said: the weights, or the graphs, were not measured or have no rule"
    if frame.token_ratio is None:
        return f"the bytes of a token as {frame.inputs.kv_cache_dtype} have no rule for this model's pool"
    return "the run ended before it said how many bytes a token takes"


def unknown_free(frame: Frame) -> str:
    """Say why what is free at the end is not known."""
    if frame.token is None or frame.available is None:
        return unknown_tokens(frame)
    if frame.context is None and frame.facts.context is not None:
        return "the model's own context length is not known: the run was given another"
    if frame.inputs.cuda_graph_max_bs is not None and not frame.facts.after.sizes:
        return "no decode graph was captured in this run, from which others could be scaled"
    if frame.facts.after.lumped and frame.facts.after.beside is not None:
        return "the request pool would be another, and a log does not print what it takes"
    return frame.facts.after.reason or "a cost after the budget was not measured"


def _wishes(planned: Outlook, wishes: Wishes) -> list[Wish]:
    asked = (
        ("--tokens", wishes.tokens, planned.tokens),
        ("--concurrency", wishes.concurrency, planned.concurrency),
        ("--free", wishes.free_bytes, planned.free),
    )
    return [_wish(flag, wanted, given) for flag, wanted, given in asked if wanted is not None]


def _wish(flag: str, wanted: int, planned: int | None) -> Wish:
    spare = None if planned is None else planned - wanted
    return Wish(flag=flag, wanted=wanted, planned=planned, spare=spare, holds=None if spare is None else spare >= 0)
