"""Rules about ranks that are not alike: mixed cards, and a rank with less free memory than its peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.phrases import gpu, percent
from sglang_probe.explain.rules.tenants import BALANCED, cause_elsewhere
from sglang_probe.explain.subject import Subject, label, labels
from sglang_probe.figures import added, gib, listed
from sglang_probe.timeline.model import Process, Step

SAME_CARD: Final = 0.99
"""Totals of cards of one kind differ by less than a percent (ECC, firmware)."""


class Place(NamedTuple):
    """What was free on each rank at the end of the same step."""

    step: Step
    free: dict[str, int]
    costs: dict[str, int | None]


def mixed_cards(subject: Subject) -> Iterator[Finding]:
    """The ranks run on cards of different size or kind."""
    kinds: defaultdict[tuple[str, int], list[Process]] = defaultdict(list)
    for process in subject.ranks:
        device = process.device
        if device is not None and device.kind != "cpu" and device.total_bytes is not None:
            kinds[device.name or "unknown", device.total_bytes].append(process)
    totals = [total for _, total in kinds]
    if len({name for name, _ in kinds}) < 2 and (not totals or min(totals) >= SAME_CARD * max(totals)):
        return
    shown = "; ".join(f"{name} of {gib(total)} GiB: {listed(labels(who), 8)}" for (name, total), who in kinds.items())
    lost = max(totals) - min(totals)
    yield Finding(
        rule="mixed_cards",
        severity="warning",
        says=f"The cards differ ({shown}). SGLang takes the minimum over the ranks, so up to {gib(lost)} GiB of"
        " the larger"
        " cards serve nothing",
        numbers={
            "device_total_bytes_by_rank": {
                label(process): total for (_, total), who in kinds.items() for process in who
            }
        },
        lever=Lever(says="run on cards of one kind: CUDA_VISIBLE_DEVICES chooses them"),
        confidence="certain",
    )


def rank_spread(subject: Subject) -> Iterator[Finding]:
    """A rank has a tenth less free memory than another at the same step."""
    place = next(iter(_uneven(subject)), None)
    if place is None:
        return
    poor, rich = min(place.free, key=lambda who: place.free[who]), max(place.free, key=lambda who: place.free[who])
    less, more = place.free[poor], place.free[rich]
    refused = subject.run.outcome == "failed" and subject.run.failed_phase == "dist.init"
    gap = more - less
    yield Finding(
        rule="rank_spread",
        severity="error" if refused and cause_elsewhere(subject) is None else "warning",
        ranks=(poor,),
        says=f"After {place.step.phase} {poor} has {gib(less)} GiB free and {rich} {gib(more)}: {added(more, -less)}"
        f" GiB less, ratio {less / more:.2f}. {_why(subject, place, poor, rich, gap)}{_refused(refused)}",
        numbers={"free_bytes": less, "free_bytes_by_rank": dict(place.free), "ratio": less / more},
        formula=f"{gib(less)} / {gib(more)} = {less / more:.3f} < {BALANCED}",
        lever=Lever(
            gain_bytes=gap,
            says=f"look at what else is on {gpu(_of(subject, poor))} (nvidia-smi), or leave that card out",
        ),
        confidence="certain" if refused else "likely",
    )


def _uneven(subject: Subject) -> Iterator[Place]:
    """Return the steps, in order, at whose end one rank had a tenth less than another; a CPU's ranks share memory."""
    ranks = [process for process in subject.ranks if process.device is None or process.device.kind != "cpu"]
    seen: dict[tuple[str, str | None, str | None], list[tuple[Process, Step]]] = {}
    for process in ranks:
        known: set[tuple[str, str | None, str | None]] = set()
        for step in process.steps:
            key = (step.phase, step.detail, step.worker)
            if (
                step.free_bytes is not None
                and key not in known
                and step.phase in {"dist.init", "weights.load", "kv.pool"}
            ):
                known.add(key)
                seen.setdefault(key, []).append((process, step))
    for pairs in seen.values():
        free = {label(process): step.free_bytes or 0 for process, step in pairs}
        if len(free) > 1 and min(free.values()) < BALANCED * max(free.values()):
            yield Place(pairs[0][1], free, {label(process): step.cost_bytes for process, step in pairs})


def _why(subject: Subject, place: Place, poor: str, rich: str, gap: int) -> str:
    """Say what the gap is made of, as far as it was measured."""
    tenants = {label(process): sum(one.bytes or 0 for one in process.neighbours if one.kind == "foreign")
               for process in subject.ranks}  # fmt: skip
    taken = tenants.get(poor, 0) - tenants.get(rich, 0)
    if taken >= gap * 0.9:
        return f"Others hold {gib(taken)} GiB more on its device, which is {percent(min(taken, gap), gap)} of the gap."
    mine, theirs = place.costs.get(poor), place.costs.get(rich)
    if mine is not None and theirs is not None and mine - theirs >= gap * 0.9:
        return f"The step itself took {gib(mine - theirs)} GiB more there (pipeline stages need not be alike)."
    return "Neither the step nor a listed process accounts for it: another card, or memory that no list names."


def _refused(refused: bool) -> str:
    return " SGLang refuses a start whose least is below 0.9 of the most." if refused else ""


def _of(subject: Subject, name: str) -> Process:
    return next(process for process in subject.ranks if label(process) == name)
