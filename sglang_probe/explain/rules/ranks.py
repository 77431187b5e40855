"""Rules about ranks that are not alike: mixed cards, and a rank with less free memory than its peers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from sglang_probe.explain.effects import BALANCED, Effect, is_even, was_refused
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.others import Held, burden_of
from sglang_probe.explain.phrases import gpu
from sglang_probe.explain.poorer import effect_of_poorer, named, stage_of, took_more
from sglang_probe.explain.rules.tenants import cause_elsewhere
from sglang_probe.explain.subject import Subject, label, labels
from sglang_probe.explain.told import positive
from sglang_probe.figures import GIB, added, gib
from sglang_probe.timeline import label_ranges
from sglang_probe.timeline.model import Process, Step
from sglang_probe.timeline.processes import is_cpu

_LEAST: Final = re.compile(r"(?:pre_model_load_memory|min_per_gpu_memory)=(\d{1,9}(?:\.\d+)?)(?![\d.]*\d)")
_OWN: Final = re.compile(r"local_gpu_memory=(\d{1,9}(?:\.\d+)?)(?![\d.]*\d)")
"""SGLang's own figures in its refusal, in GiB: the minimum over the ranks, and the raising rank's."""
_TENSOR: Final = re.compile(r"\bTP(\d+)")
SAME_CARD: Final = 0.99
"""Totals of cards of one kind differ by less than a percent (ECC, firmware)."""


class Place(NamedTuple):
    """What was free on each rank at the end of the same step."""

    phase: str
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
    ranks_of = {kind: label_ranges.named(labels(who)) for kind, who in kinds.items()}
    shown = "; ".join(f"{name} of {gib(total)} GiB: {who}" for (name, total), who in ranks_of.items())
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
    """A rank has a tenth less free memory than another at the same step, or SGLang refused the start for it."""
    refused = was_refused(subject)
    place = next(iter(_uneven(subject)), None) or (_as_sglang_says(subject) if refused else None)
    if place is None:
        return
    poor, rich = min(place.free, key=lambda who: place.free[who]), max(place.free, key=lambda who: place.free[who])
    less, more = place.free[poor], place.free[rich]
    cause = _why(subject, place, poor, rich, more - less)
    effect = effect_of_poorer(subject)
    is_cause = effect is not None and effect.severity == "error"
    quiet = cause.by_itself and not refused and not is_cause
    yield Finding(
        rule="rank_spread",
        severity="error" if is_cause or (refused and cause_elsewhere(subject) is None) else "info" if quiet
        else "warning",
        ranks=tuple(who for who in (poor,) if any(label(one) == who for one in subject.ranks)),
        says=f"After {place.phase} {poor} has {gib(less)} GiB free and {rich} {gib(more)}: {added(more, -less)}"
        " GiB less,"
        f" ratio {less / more:.2f}. {cause.says}{_refused(refused)}{'' if effect is None else f' {effect.says}.'}",
        numbers={"free_bytes": less, "free_bytes_by_rank": dict(place.free), "ratio": less / more},
        formula=f"{gib(less)} / {gib(more)} = {less / more:.3f} < {BALANCED}"
        f"{f'; {effect.formula}' if effect is not None and effect.formula else ''}",
        lever=None if quiet else _look_at(subject, poor, effect),
        confidence="certain" if refused else "likely",
    )


def _as_sglang_says(subject: Subject) -> Place | None:
    """Return what SGLang's own message says, where the other rank's record is not here."""
    said = "" if subject.run.failure is None else subject.run.failure.message or ""
    least, own = _LEAST.search(said), _OWN.search(said)
    if least is None or own is None:
        return None
    free = {
        "the poorest rank": round(float(least[1]) * GIB),
        subject.run.failed_label or "this rank": round(float(own[1]) * GIB),
    }
    return Place("dist.init", free, {}) if 0 < min(free.values()) < max(free.values()) else None


def _look_at(subject: Subject, poor: str, effect: Effect | None) -> Lever:
    known = next((_device(subject, process) for process in subject.ranks if label(process) == poor), "its device")
    says = f"look at what else is on {known} (nvidia-smi), or leave that card out"
    return Lever(says=says) if effect is None else Lever(says=says, gain_bytes=effect.gain_bytes, enough=effect.enough)


def _device(subject: Subject, process: Process) -> str:
    """Name a rank's device; a log has no index, and SGLang numbers devices by tensor rank unless it is told to."""
    rank = _TENSOR.search(process.label or "")
    if not subject.is_log or rank is None:
        return gpu(process, subject)
    index, node = int(rank[1]), ""
    tensor, nodes = positive(subject.effective("tp_size")), positive(subject.effective("nnodes"))
    if tensor is not None and nodes is not None and nodes > 1:
        if tensor % nodes or positive(subject.effective("pp_size")) not in {None, 1}:
            return gpu(process, subject)  # which ranks a node has is not told by these numbers
        node, index = f" of node {index // (tensor // nodes)}", index % (tensor // nodes)
    return f"{gpu(process, subject)} (GPU {index}{node} unless --base-gpu-id says otherwise)"


def _uneven(subject: Subject) -> Iterator[Place]:
    """Return the steps, in order, at whose end one rank had a tenth less than another; a CPU's ranks share memory."""
    ranks = [process for process in subject.ranks if not is_cpu(process)]
    seen: dict[tuple[str, str | None, str | None], list[tuple[Process, Step]]] = {}
    for process in ranks:
        known: set[tuple[str, str | None, str | None]] = set()
        for step in process.steps:
            key = (step.phase, step.detail, step.worker)
            if (
                step.free_bytes is not None
                and step.free_bytes >= 0
                and key not in known
                and step.phase in {"dist.init", "weights.load", "kv.pool"}
            ):
                known.add(key)
                seen.setdefault(key, []).append((process, step))
    for pairs in seen.values():
        free = {label(process): step.free_bytes or 0 for process, step in pairs}
        if len(free) > 1 and not is_even(free.values()):
            yield Place(pairs[0][1].phase, free, {label(process): step.cost_bytes for process, step in pairs})


class Why(NamedTuple):
    """What a gap is made of, as far as it was measured."""

    says: str
    by_itself: bool = False
    """The step itself took more on that rank: nothing is wrong."""


def _why(subject: Subject, place: Place, poor: str, rich: str, gap: int) -> Why:
    tenants = burden_of(subject, lambda _, one: one.kind == "foreign")
    taken = tenants.get(poor, Held()).now - tenants.get(rich, Held()).now
    if taken >= gap * 0.9:
        return Why(f"Others hold {gib(taken)} GiB more on its device: that is the gap.")
    mine, theirs = place.costs.get(poor), place.costs.get(rich)
    if mine is not None and theirs is not None and mine - theirs >= gap * 0.9:
        says = "pipeline stages need not be alike."
        by_itself = True
        if subject.is_log:
            own, other = named(subject, poor), named(subject, rich)
            says, by_itself = took_more(own, other), stage_of(own) != stage_of(other)
        return Why(f"The step itself took {gib(mine - theirs)} GiB more there: {says}", by_itself)
    if subject.is_log:
        return Why("A log lists no processes: it is another card, or another tenant on that one.")
    return Why("Neither the step nor a listed process accounts for it: another card, or memory that no list names.")


def _refused(refused: bool) -> str:
    return f" SGLang refuses a start whose least is below {BALANCED} of the most." if refused else ""
