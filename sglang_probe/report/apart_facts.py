"""In what facts (no amounts) ranks differ from the others, and what is said beside a rank whatever group it is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from sglang_probe.figures import counted, gib, number
from sglang_probe.report.facts import COUNTS, Facts, own_of, said_of, tenants_of, told_of
from sglang_probe.report.fold import Fold, same_count
from sglang_probe.report.plain import printable
from sglang_probe.report.steps import step_name
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Process, Step

MOST_FACTS: Final = 8
"""Facts of a group that are printed."""
LONGEST: Final = 80
"""Characters of a value that are printed."""
UNDER_ANOTHER_NAME: Final = frozenset({"max_total_num_tokens", "profiled_tokens"})
"""Counts that are the KV cache's tokens."""


def cards(fold: Fold) -> Iterator[str]:
    """Say who else is on the cards of a group: strangers, and other ranks.

    Worked example: `30.000 GiB of its card are another process's (pid 4711)`, `on one card with TP0`.
    """
    strangers = [tenants_of(process) for process in fold.processes]
    amounts = [sum(one.peak_bytes or 0 for one in found) for found in strangers if found]
    if amounts:
        pids = [str(one.pid) for found in strangers for one in found]
        who = "another process's" if len(pids) == 1 else "other processes'"
        card = "its card" if len(fold.processes) == 1 else "each of its cards"
        upto = "" if gib(min(amounts)) == gib(max(amounts)) else f"{gib(min(amounts))} to "
        yield f"{upto}{gib(max(amounts))} GiB of {card} are {who} (pid {named(pids)})"
    outside = [label for label in fold.mates if label not in fold.labels]
    if outside:
        yield f"on one card with {named(outside)}"
    elif fold.mates:
        yield "both on one card" if len(fold.processes) == 2 else "sharing cards with one another"


def beside(fold: Fold) -> list[str]:
    """Return what is said of a group even where nothing is compared with it: who is on its cards, and how far its ranks
    are apart in what follows from memory."""
    return [*cards(fold), *ranges(fold)]


def ranges(fold: Fold) -> Iterator[str]:
    """Say from where to where counts go that follow from memory: `3,979,000 to 3,979,547 KV tokens (least TP5)`."""
    if len(fold.processes) < 2:
        return
    seen: set[tuple[int, int]] = set()
    for name, counts in _counts(fold):
        known = [count for count in counts if count is not None]
        least, most = (min(known), max(known)) if known else (0, 0)
        if least != most and (least, most) not in seen:
            seen.add((least, most))
            yield f"{number(least)} to {number(most)} {name} (least {fold.labels[counts.index(least)]})"
    lost = [process.lost_events for process in fold.processes]
    if min(lost) != max(lost):
        yield f"{number(min(lost))} to {number(max(lost))} events lost (most {fold.labels[lost.index(max(lost))]})"


def _counts(fold: Fold) -> Iterator[tuple[str, list[int | None]]]:
    for place, worker in enumerate(fold.shown.workers):
        if worker.kv is not None:
            whose = "" if worker.worker == "target" else f", {worker.worker}"
            caches = [process.workers[place].kv for process in fold.processes]
            yield f"KV tokens{whose}", [None if kv is None else kv.tokens for kv in caches]
            yield f"KV tokens profiled{whose}", [None if kv is None else kv.profiled_tokens for kv in caches]
    for place, step in enumerate(fold.shown.steps):
        for name in sorted(COUNTS & step.attributes.keys()):
            values = [process.steps[place].attributes.get(name) for process in fold.processes]
            yield f"{name} in {step_name(step)}", [value if type(value) is int else None for value in values]


def facts_apart(fold: Fold, other: Fold, steps: Iterable[tuple[Step, Step]]) -> list[str]:
    """Return each fact that a group has otherwise than another one; `steps` are those that both have.

    Worked example: `weights.load LlamaForCausalLM: quantization fp8, not none`.
    """
    found = list(_own(fold, other))
    told: list[tuple[str, str, Any, Any]] = []
    told_by_kv = _tokens(fold) != _tokens(other)
    for here, there in steps:
        one, two = (said_of(step.attributes) for step in (here, there))
        near = {name for name, count in one.counts if _is_said(name, count, dict(two.counts).get(name), told_by_kv)}
        differing = _differing((*one.facts, *one.counts), (*two.facts, *two.counts))
        told += ((step_name(here), *fact) for fact in differing if fact[0] not in near)
    for mine, theirs in zip(fold.shown.workers, other.shown.workers, strict=False):
        for name, value, instead in _differing(told_of(mine), told_of(theirs)):
            what, _, field = name.rpartition(": ")
            told.append((what, field, value, instead))
    found += _once(told)
    more = len(found) - MOST_FACTS
    return found if more <= 0 else [*found[:MOST_FACTS], f"{counted(more, 'more fact')} (see its block)"]


def _tokens(fold: Fold) -> list[int | None]:
    return [None if worker.kv is None else worker.kv.tokens for worker in fold.shown.workers]


def _is_said(name: str, count: int, other: int | None, told_by_kv: bool) -> bool:
    """Say whether a count is near enough, or is the cache's tokens, which have a sentence of their own."""
    return (name in UNDER_ANOTHER_NAME and told_by_kv) or (other is not None and same_count(count, other))


def _once(told: Sequence[tuple[str, str, Any, Any]]) -> Iterator[str]:
    """Say a fact of several steps, or of a step and of what was made of it, once, where it came first."""
    seen = set()
    for where, name, value, instead in told:
        if name == "mem_fraction_static":  # has a sentence of its own
            continue
        key = name, repr(value), repr(instead)
        if key not in seen:
            seen.add(key)
            yield f"{where}: {name} {_text(value)}, not {_text(instead)}"


def _differing(here: Facts, there: Facts) -> Iterator[tuple[str, Any, Any]]:
    if here == there:
        return
    others = dict(there)
    for name, value in here:
        if name in others and others[name] != value:
            yield name, value, others[name]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return number(value)
    text = printable(_listed(value) if isinstance(value, tuple) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _listed(values: tuple[Any, ...]) -> str:
    parts = [f"({_listed(one)})" if isinstance(one, tuple) else _text(one) for one in values[:LONGEST]]
    return f"[{', '.join(parts)}]" if parts else "nothing"


def _own(fold: Fold, other: Fold) -> Iterator[str]:
    """Say in what the processes themselves differ."""
    process, instead = fold.shown, other.shown
    here, there = own_of(process), own_of(instead)
    for is_so, was_so, yes, no in (
        (here.gone, there.gone, "its process is gone", "its process is not gone"),
        (here.torn_tail, there.torn_tail, "the last line of its file is cut off", "its file has a whole last line"),
        (here.no_memory_role, there.no_memory_role, "no memory role is hooked in it", "memory roles are hooked in it"),
    ):
        if is_so != was_so:
            yield yes if is_so else f"{no}, as it is not of the others"
    if here.lost != there.lost:
        lost, usual = (_least_and_most([one.lost_events for one in some.processes]) for some in (fold, other))
        yield f"{lost} of its events are lost, not {usual}"
    for source, reason in sorted(here.unreadable - there.unreadable):
        yield f"{source} could not be read: {reason}{_detail(process, source, reason)}"
    for source, reason in sorted(there.unreadable - here.unreadable):
        yield f"{source} could be read of it, not of the others ({reason})"
    for target, state, why in sorted(here.failed_hooks - there.failed_hooks, key=str):
        yield f"its hook of {target} {_state(state)}{f': {_text(why)}' if why else ''}"
    for target, state, _ in sorted(there.failed_hooks - here.failed_hooks, key=str):
        yield f"its hook of {target} is in place, and of the others {_state(state)}"


def _state(state: str | None) -> str:
    return "was displaced" if state == "displaced" else "failed"


def _least_and_most(counts: Sequence[int]) -> str:
    least, most = number(min(counts)), number(max(counts))
    return least if least == most else f"{least} to {most}"


def _detail(process: Process, source: str, reason: str) -> str:
    for one in process.degraded:
        if (one.source, one.reason) == (source, reason):
            detail = _text(one.detail) if one.detail else ""
            return f" ({f'{detail}, ' if detail else ''}{counted(one.count, 'time')})"
    return ""
