"""In what ranks differ from those that most ranks agree with, in sentences, and how far those that agree are apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median, median_low
from typing import Any, Final, NamedTuple

from sglang_probe.figures import counted, exception_type, gib, number, seconds
from sglang_probe.report.apart_facts import cards, facts_apart, ranges
from sglang_probe.report.facts import kind_of, tenants_of
from sglang_probe.report.fold import TOLERANCE, UNFINISHED, Fold
from sglang_probe.report.steps import step_name
from sglang_probe.timeline.ledger_rows import KEYS, NAMES
from sglang_probe.timeline.model import Budget, Process, Step
from sglang_probe.timeline.processes import is_cpu, last_ledger

SLOW: Final = 2.0
"""A step that took so many times as long is worth saying."""
SLOW_S: Final = 0.2
"""If it is also longer by so many seconds."""
MANY: Final = 3
"""Sentences of a kind that are printed, those that come first, or that tell most."""
SHOWN: Final = 1 << 19
"""Bytes from which a spread is not 0.000 GiB."""

Key = tuple[str, str | None, str | None, int | None, int]
"""Phase, what it was for, whose worker, and which one of those that are the same."""


class Middle(NamedTuple):
    """The ranks that the others are compared with: the largest group that agrees."""

    fold: Fold
    steps: dict[Key, tuple[Step, ...]]
    members: frozenset[int]

    def has(self, process: Process) -> bool:
        """Say whether a process is one of them."""
        return id(process) in self.members


def middle_of(folds: Sequence[Fold]) -> Middle | None:
    """Return the largest group without a stranger on its cards, of several the first that did not go wrong and is not
    the tightest; None where there is no other to compare with it."""
    if len(folds) < 2:
        return None

    def weight(fold: Fold) -> tuple[bool, int, bool, bool]:
        return not tenants_of(fold.shown), len(fold.processes), not _went_wrong(fold), fold.tightest is None

    largest = max(folds, key=weight)
    return Middle(largest, _by_key(largest), frozenset(map(id, largest.processes)))


def _went_wrong(fold: Fold) -> bool:
    return any(step.state in {"error", "died"} for step in fold.shown.steps)


def differences(fold: Fold, middle: Middle) -> list[str]:
    """Return in what a group differs from the others: what it is, how it ended, what is free from where on, what took
    long.

    Worked example: `0.293 GiB less free after dist.communicator ProcessGroup world`, `weights.load took 3.0x as long
    (0.336 s, not 0.112)`.
    """
    own = _by_key(fold)
    said = [*cards(fold), *_cards(fold, middle), *_steps(fold, own, middle), *_endings(fold, middle)]
    said += facts_apart(fold, middle.fold, [(one[0], other[0]) for one, other in _pairs(own, middle)])
    said += [*_free(fold, own, middle), *_slow(fold, own, middle), *_tokens(fold, middle)]
    return said or list(_rows(fold, middle)) or ["other figures are known of it, or unknown (see its block)"]


def _pairs(own: dict[Key, tuple[Step, ...]], middle: Middle) -> Iterator[tuple[tuple[Step, ...], tuple[Step, ...]]]:
    return ((steps, middle.steps[key]) for key, steps in own.items() if key in middle.steps)


def _by_key(fold: Fold) -> dict[Key, tuple[Step, ...]]:
    """Return each step of a group as all its ranks have it: they have the same ones, in the same order."""
    found: dict[Key, tuple[Step, ...]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for steps in zip(*(process.steps for process in fold.processes), strict=True):
        step = steps[0]
        kind = (step.phase, kind_of(step.detail), step.worker, step.draft_index)
        key = (*kind, seen[kind])
        found[key] = steps
        seen[kind] += 1
    return found


def _cards(fold: Fold, middle: Middle) -> Iterator[str]:
    own, others = fold.shown.device, middle.fold.shown.device
    if own is not None and others is not None and own.name != others.name:
        yield f"its card is {own.name or 'unknown'}, not {others.name or 'unknown'}"
    totals = [None if one is None else one.total_bytes for one in (own, others)]
    if totals[0] is not None and totals[1] is not None and abs(totals[0] - totals[1]) > TOLERANCE:
        yield f"its card has {gib(totals[0])} GiB, not {gib(totals[1])}"


def _steps(fold: Fold, own: dict[Key, tuple[Step, ...]], middle: Middle) -> Iterator[str]:
    """Say which steps are more, or less, where nothing ended early."""
    if any(step.state in UNFINISHED for one in (fold, middle.fold) for step in one.shown.steps):
        return
    for what, there, here in (("no", middle.steps, own), ("also", own, middle.steps)):
        names = [step_name(steps[0]) for key, steps in there.items() if key not in here]
        if names:
            more = f" and {counted(len(names) - MANY, 'more step')}" if len(names) > MANY else ""
            yield f"{what} {', '.join(names[:MANY])}{more}"


def _endings(fold: Fold, middle: Middle) -> Iterator[str]:
    """Say in which step it failed, died or stands, where the others did not end there too."""
    own, others = (ending(one.shown) for one in (fold, middle.fold))
    if own != others:
        yield own or f"came to its end, and the others did not ({others})"


def ending(process: Process) -> str | None:
    """Return how the innermost step without a good end stands; None where there is none."""
    unfinished = [step for step in process.steps if step.state in UNFINISHED]
    if not unfinished:
        return None if process.steps else "no memory step was recorded"
    step = max(unfinished, key=lambda step: (step.state == "error", step.depth))
    why = "" if step.failure is None else f": {exception_type(step.failure.type)}"
    return f"{step.state} in {step_name(step)}{why}"


def _free(fold: Fold, own: dict[Key, tuple[Step, ...]], middle: Middle) -> Iterator[str]:
    """Say from which steps on more or less is free, each time that this changes."""
    before = 0
    said = 0
    for position, (key, steps) in enumerate(own.items()):
        others = middle.steps.get(key)
        if others is None or said == MANY or _holds_steps(fold.shown, position):
            continue
        for when, name in (("before", "free_before_bytes"), ("after", "free_bytes")):
            here, there = _median(steps, name), _median(others, name)
            if here is None or there is None or abs(here - there - before) <= TOLERANCE:
                continue
            before = here - there
            if abs(before) > TOLERANCE:
                less = "less" if before < 0 else "more"
                yield f"{gib(abs(before))} GiB {less} free {when} {step_name(steps[0])}"
            else:
                yield f"as much free as the others {when} {step_name(steps[0])}"
            said += 1


def _holds_steps(process: Process, position: int) -> bool:
    after = position + 1
    return after < len(process.steps) and process.steps[after].depth > process.steps[position].depth


def _median(steps: Iterable[Step], name: str) -> int | None:
    known = [value for step in steps if (value := getattr(step, name)) is not None]
    return median_low(known) if known else None


def _slow(fold: Fold, own: dict[Key, tuple[Step, ...]], middle: Middle) -> list[str]:
    """Say which steps took much longer than the others took, those first that lost most."""
    found: list[tuple[float, str]] = []
    for position, (key, steps) in enumerate(own.items()):
        here = [step.duration_s for step in steps if step.duration_s is not None]
        there = [step.duration_s for step in middle.steps.get(key, ()) if step.duration_s is not None]
        if not here or not there or _holds_steps(fold.shown, position):
            continue
        took, usual = median(here), median(there)
        if took >= SLOW * usual and took - usual >= SLOW_S:
            times = f"{took / usual:.1f}x as long" if usual > 0 else "longer"
            said = f"{step_name(steps[0])} took {times} ({seconds(took)} s, not {seconds(usual)})"
            found.append((usual - took, said))
    return [said for _, said in sorted(found)[:MANY]]


def _tokens(fold: Fold, middle: Middle) -> Iterator[str]:
    for own, other in zip(fold.shown.workers, middle.fold.shown.workers, strict=False):
        if own.kv is not None and other.kv is not None and own.kv.tokens != other.kv.tokens:
            yield f"{number(own.kv.tokens)} KV tokens, not {number(other.kv.tokens)}"
        fractions = [None if one.budget is None else one.budget.mem_fraction_static for one in (own, other)]
        if None not in fractions and fractions[0] != fractions[1]:
            yield f"mem_fraction_static {fractions[0]}, not {fractions[1]}"


def _rows(fold: Fold, middle: Middle) -> Iterator[str]:
    """Say which rows of the last ledger differ, where no step tells of it."""
    for key in KEYS:
        here, there = (_row(one.processes, key) for one in (fold, middle.fold))
        if here is not None and there is not None and abs(here - there) > TOLERANCE:
            yield f"{gib(abs(here - there))} GiB {'less' if here < there else 'more'} for {NAMES[key]}"


def _row(processes: Iterable[Process], key: str) -> int | None:
    last = [last_ledger(process) for process in processes]
    known = [value for step in last if step is not None and (value := getattr(step.ledger, key)) is not None]
    return median_low(known) if known else None


def spread(fold: Fold) -> Iterator[str]:
    """Say how far ranks that agree are apart, step by step where that prints: `weights.load: cost 4.240 to 4.260`."""
    if len(fold.processes) < 2:
        return
    yield from ranges(fold)
    for position, steps in enumerate(zip(*(process.steps for process in fold.processes), strict=True)):
        if _holds_steps(fold.shown, position):
            continue
        costs = _range(fold, "cost", [step.cost_bytes for step in steps], fold.shown.steps[position].precision_bytes)
        parts = [*costs, *_times(fold, steps)]
        if parts:
            yield f"{step_name(fold.shown.steps[position])}: {', '.join(parts)}"
    for position, worker in enumerate(fold.shown.workers):
        budgets = [process.workers[position].budget or Budget() for process in fold.processes]
        precision = worker.budget.precision_bytes if worker.budget is not None else None
        pre_load = [budget.pre_load_local_bytes for budget in budgets]
        available = [budget.available_local_bytes for budget in budgets]
        parts = [*_range(fold, "pre-load", pre_load, precision), *_range(fold, "available", available, precision)]
        if parts:
            yield f"own terms of the budget, {worker.worker}: {', '.join(parts)}"


def _range(fold: Fold, what: str, amounts: Sequence[int | None], precision: int | None) -> Iterator[str]:
    """Say from where to where an amount goes, and who is at the end that hurts: most is taken, or least is left."""
    known = [amount for amount in amounts if amount is not None]
    shown = TOLERANCE if is_cpu(fold.shown) else SHOWN  # what others did to the host's memory meanwhile is in it
    if not known or max(known) - min(known) < max(shown, precision or 0):
        return
    end, word = (max(known), "most") if what == "cost" else (min(known), "least")
    who = fold.labels[amounts.index(end)]
    yield f"{what} {gib(min(known), precision)} to {gib(max(known), precision)} ({word} {who})"


def _times(fold: Fold, steps: Sequence[Step]) -> Iterator[str]:
    known = [step.duration_s for step in steps if step.duration_s is not None]
    longest, usual = max(known, default=0.0), median(known or [0.0])
    if longest >= SLOW * usual and longest - usual >= SLOW_S:
        slowest = fold.labels[[step.duration_s for step in steps].index(longest)]
        yield f"{seconds(min(known))} to {seconds(longest)} s (longest {slowest})"
