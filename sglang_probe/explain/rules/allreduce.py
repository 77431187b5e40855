"""Rules about what lies before the weights: the custom all-reduce, and where the memory of an idle card went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from sglang_probe.explain.counterfactual import before_weights, given_back
from sglang_probe.explain.effects import effect_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.subject import Subject, label, labels
from sglang_probe.figures import added, fraction, gib, listed, number, shares
from sglang_probe.timeline.model import PreLoad, Process, Step

_NO_GROUP: Final = (None, 1)
OTHERS: Final = 64 << 20
"""Bytes in use before the process: with more, the card was not idle."""
ASSUMED_IDLE: Final = "nothing was read before the CUDA context; the card was idle, by the figures adding up"


def custom_all_reduce(subject: Subject) -> Iterator[Finding]:
    """What the custom all-reduce really cost, whether it can be the cause at all, and why it stayed disabled."""
    costs = {
        label(process): process.pre_load.custom_allreduce_bytes
        for process in subject.ranks
        if process.pre_load is not None and process.pre_load.custom_allreduce_bytes is not None
    }
    if any(costs.values()) and not _asked_elsewhere(subject):
        yield _cost(subject, costs)
    yield from _in_a_log(subject)
    disabled: defaultdict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in subject.ranks:
        for step in process.steps:
            if _stayed_disabled(step):
                name = str(step.attributes.get("class") or step.detail or "the custom all-reduce")
                disabled[name, str(step.attributes.get("disabled_reason") or "it does not say why")].append(process)
    for remark in subject.run.remarks:  # a line of a log that names no rank
        if remark.kind == "allreduce_disabled":
            name = str(remark.values.get("cls") or "the custom all-reduce")
            disabled.setdefault((name, str(remark.values.get("reason") or remark.text)), [])
    for (name, reason), who in disabled.items():
        yield Finding(
            rule="custom_all_reduce",
            severity="info",
            ranks=tuple(dict.fromkeys(labels(who))),
            says=f"{name} stayed disabled: {reason}. It took no memory; all-reduces go through NCCL",
            numbers={"class": name, "disabled_reason": reason},
            confidence="certain",
        )


def _in_a_log(subject: Subject) -> Iterator[Finding]:
    """Whether a log shows that it was on: it registers the addresses of each graph's buffers."""
    counts = [count for remark in subject.run.remarks if remark.kind == "allreduce_registered"
              if isinstance(count := remark.values.get("addresses"), int)]  # fmt: skip
    if counts and max(counts) > 0:
        span = number(max(counts)) if min(counts) == max(counts) else f"{number(min(counts))} to {number(max(counts))}"
        yield Finding(
            rule="custom_all_reduce",
            severity="info",
            says=f"The custom all-reduce was on: {span} graph addresses registered. What its buffers took is not in the"
            " log: it lies before the weights.",
            numbers={"graph_addresses": max(counts), "custom_allreduce_bytes": None},
            confidence="certain",
        )


def _asked_elsewhere(subject: Subject) -> bool:
    """Say whether the run failed of something that no buffer can have to do with."""
    return subject.failed and not subject.budget_failed and shortage_of(subject) is None


def _cost(subject: Subject, costs: dict[str, int]) -> Finding:
    most, least = max(costs.values()), min(costs.values())
    span = gib(most) if gib(most) == gib(least) else f"{gib(least)} to {gib(most)}"
    effect = _effect(subject, costs)
    return Finding(
        rule="custom_all_reduce",
        severity="error" if effect.cause else "info",
        ranks=() if len(costs) == len(subject.ranks) else tuple(costs),
        says=f"The custom all-reduce cost {span} GiB on each rank.{effect.says}",
        numbers={"custom_allreduce_bytes": most, "custom_allreduce_bytes_by_rank": costs, **effect.numbers},
        formula=effect.formula,
        lever=effect.lever,
        confidence="certain" if _separable(subject) else "likely",
    )


class _Effect(NamedTuple):
    """What the custom all-reduce did to the budget."""

    says: str = ""
    formula: str | None = None
    cause: bool = False
    lever: Lever | None = None
    numbers: Mapping[str, int | None] = MappingProxyType({})


def _effect(subject: Subject, costs: dict[str, int]) -> _Effect:
    if shortage_of(subject) is not None:
        return _on_shortage(subject, costs)
    outcome, seat = given_back(subject, before_weights(costs)), subject.tightest
    if outcome is None or seat is None:
        return _Effect()
    tokens = _tokens(seat.process.pre_load, outcome.gain_tokens)
    gain, cost = gib(outcome.gain_bytes), gib(costs.get(seat.label))
    says = f" It lowers the KV budget by {gain} GiB{'' if tokens is None else f', {number(tokens)} KV tokens'}."
    formula = f"{cost} x {fraction(seat.budget.mem_fraction_static)} = {gain} GiB"
    numbers = {"rest_gain_bytes": outcome.gain_bytes, "custom_allreduce_tokens": tokens}
    if not subject.budget_failed or outcome.proves_nothing:
        return _Effect(says, formula, numbers=numbers)
    before = seat.budget.rest_bytes or 0
    rest = gib(outcome.rest_bytes)
    formula += f"; rest without it = {gib(before)} + {added(outcome.rest_bytes, -before)} = {rest} GiB"
    if not outcome.starts:
        says += f" It cannot be the cause: without it the budget would still be {rest} GiB."
        return _Effect(says, formula, numbers=numbers)
    lever = Lever(
        flag="--disable-custom-all-reduce",
        gain_bytes=outcome.gain_bytes,
        gain_tokens=tokens,
        enough=True,
        says="gives back what it took before the weights; small all-reduces get slower",
    )
    return _Effect(f"{says} Without it this server would have started.", formula, True, lever, numbers)


def _on_shortage(subject: Subject, costs: dict[str, int]) -> _Effect:
    """Of an allocation that failed: would it have fitted without?"""
    shortage = shortage_of(subject)
    if shortage is None or shortage.short_bytes is None:
        return _Effect()
    burden = before_weights(costs)
    effect, short = effect_of(subject, burden, burden), mib(shortage.short_bytes)
    if not effect.enough:
        return _Effect(f" It cannot be the cause: {shortage.label} was short by {short}. {effect.says}.")
    return _Effect(
        f" {shortage.label} was short by {short}, so this one allocation would have fitted without it; others"
        " would have"
        " followed."
    )


def _tokens(way: PreLoad | None, fallback: int | None) -> int | None:
    exact = None if way is None else way.custom_allreduce_tokens
    return fallback if exact is None else round(exact)


def _separable(subject: Subject) -> bool:
    return all(process.pre_load is None or process.pre_load.not_separable is None for process in subject.ranks)


def _stayed_disabled(step: Step) -> bool:
    """Say whether a custom all-reduce of a group of several ranks was built and disabled itself."""
    if step.phase != "allreduce.buffers" or step.attributes.get("disabled") is not True:
        return False
    return step.attributes.get("world_size") not in _NO_GROUP


def before_the_weights(subject: Subject) -> Iterator[Finding]:
    """Why the engine's total is less than what an idle card has free: the way to the pre-load memory."""
    ways = [(process, process.pre_load) for process in subject.ranks if process.pre_load is not None]
    if not ways or (subject.failed and not subject.budget_failed):
        return  # then it is not what is asked
    process, way = min(ways, key=lambda pair: pair[1].pre_load_bytes or 0)
    parts = _parts(way)
    if way.pre_load_bytes is None or not parts:
        return
    total, name = _idle(process, way, parts)
    lost = gib(sum(size for size, _ in parts)) if total is None else added(total, -way.pre_load_bytes)
    begin = "" if total is None else f"{gib(total)} GiB {name}; "
    yield Finding(
        rule="before_the_weights",
        severity="info",
        ranks=(label(process),),
        says=f"{begin}{lost} GiB went to {listed([what for size, what in parts if size > 0], 6)} before any weight was"
        f" loaded: the engine's total is the {gib(way.pre_load_bytes)} GiB that were left.{_others(ways, way)}",
        numbers={
            "idle_free_bytes": way.idle_free_bytes,
            "context_bytes": way.context_bytes,
            "world_group_bytes": way.world_group_bytes,
            "communicators_bytes": way.communicators_bytes,
            "custom_allreduce_bytes": way.custom_allreduce_bytes,
            "other_bytes": way.other_bytes,
            "pre_load_bytes": way.pre_load_bytes,
            "pre_load_bytes_by_rank": {label(one): its.pre_load_bytes for one, its in ways},
        },
        formula=None if total is None else _formula(way.pre_load_bytes, total, parts),
        notes=() if total is None or total == way.idle_free_bytes else (ASSUMED_IDLE,),
        confidence="certain" if way.not_separable is None and total == way.idle_free_bytes else "likely",
    )


def _formula(left: int, total: int, parts: list[tuple[int, str]]) -> str:
    figures = shares([size for size, _ in parts], total, left)
    terms = (
        f" {'+' if figure.startswith('-') else '-'} {figure.lstrip('-')} {what}"
        for figure, (_, what) in zip(figures, parts, strict=True)
    )
    return f"{gib(total)}{''.join(terms)} = {gib(left)} GiB"


def _others(ways: list[tuple[Process, PreLoad]], least: PreLoad) -> str:
    """Say what was left on the ranks that are not the poorest, and which part makes the difference."""
    richest, way = max(ways, key=lambda pair: pair[1].pre_load_bytes or 0)
    if way.pre_load_bytes is None or gib(way.pre_load_bytes) == gib(least.pre_load_bytes):
        return ""
    theirs = {what: size for size, what in _parts(way)}
    apart = [what for size, what in _parts(least) if gib(size) != gib(theirs.get(what))]
    where = f" ({', '.join(f'{gib(theirs.get(what))} for its {what}' for what in apart[:2])})" if apart else ""
    return f" It is the least of {len(ways)} ranks; {label(richest)} was left {gib(way.pre_load_bytes)}{where}."


def _parts(way: PreLoad) -> list[tuple[int, str]]:
    named = (
        (way.context_bytes, "CUDA context"),
        (way.world_group_bytes, "world group"),
        (way.communicators_bytes, "communicators"),
        (way.custom_allreduce_bytes, "custom all-reduce"),
    )
    known = [(size, what) for size, what in named if size]
    if way.other_bytes:
        known.append((way.other_bytes, "given back" if way.other_bytes < 0 else "the rest of the distributed init"))
    return known


def _idle(process: Process, way: PreLoad, parts: list[tuple[int, str]]) -> tuple[int | None, str]:
    """Return what was free before the run, as read; else the device's total, where the parts lead from it on."""
    if way.idle_free_bytes is not None:
        others = way.unlisted_bytes is not None and way.unlisted_bytes >= OTHERS
        return way.idle_free_bytes, "were free before this process" if others else "were free on the idle card"
    total = None if process.device is None else process.device.total_bytes
    if total is not None and way.pre_load_bytes == total - sum(size for size, _ in parts):
        return total, "is what CUDA gives of the card"
    return None, ""
