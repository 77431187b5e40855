"""Rules about memory that ran out after the budget: in a load, in the capture of graphs, in pieces, or soon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from sglang_probe.explain.feasible import highest_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.oom import FLOOR_DECIDES, UNKNOWN_PHASE, Shortage, shortage_of, why_lowering_frees_nothing
from sglang_probe.explain.oom_message import figures_of, numbers_of, parse, shown
from sglang_probe.explain.others import Lists, lists_of
from sglang_probe.explain.phrases import gpu, mib
from sglang_probe.explain.set_aside import decode_max_bs, end_of_start, rule_of_thumb
from sglang_probe.explain.subject import Seat, Subject, first_of, label, raised_at
from sglang_probe.explain.told import sizes_of
from sglang_probe.figures import gib, number
from sglang_probe.timeline.arithmetic import floor_binds, is_capped, token_bytes
from sglang_probe.timeline.model import Neighbour, Process, Step
from sglang_probe.timeline.processes import is_cpu

LARGE: Final = 1 << 30
"""Reserved and not allocated by torch: from here on it is worth asking about pieces."""
FIRST_STEP: Final = 0.01
"""Of the fraction, where by how much to lower it cannot be computed: 1.4 GiB of a card of 140."""
SCARCE: Final = 0.25
"""Part of SGLang's own reserve below which activations may run out."""


def graphs(subject: Subject) -> Iterator[Finding]:
    """Out of memory while CUDA graphs were captured."""
    shortage = shortage_of(subject)
    if shortage is not None and shortage.step.phase == "graph.capture":
        yield _finding(shortage, "graphs", tuple(_capture_levers(subject, shortage)))


def out_of_memory(subject: Subject) -> Iterator[Finding]:
    """Out of memory in any other phase of the start."""
    shortage = shortage_of(subject)
    if shortage is not None and shortage.step.phase != "graph.capture":
        yield _finding(shortage, "out_of_memory", tuple(_load_levers(subject, shortage)))


def fragmentation(subject: Subject) -> Iterator[Finding]:
    """Out of memory although torch holds enough that is reserved and not allocated: it lies in pieces."""
    shortage = shortage_of(subject)
    if shortage is None:
        return
    idle = shortage.said.unallocated
    if idle is None or idle < max(shortage.wanted_bytes, 1) or (idle < LARGE and shortage.wanted_bytes < LARGE):
        return
    yield Finding(
        rule="fragmentation",
        severity="warning",
        ranks=shortage.ranks,
        says=f"PyTorch holds {mib(idle)} that are reserved and not allocated, more than the"
        f" {mib(shortage.wanted_bytes)} that"
        " were wanted: they lie in pieces, none of them large enough",
        numbers={
            "torch_reserved_unallocated_bytes": idle,
            "wanted_bytes": shortage.wanted_bytes,
            "precision_bytes": shortage.said.precision("unallocated", "wanted"),
        },
        formula=f"{mib(idle)} reserved and unallocated >= {mib(shortage.wanted_bytes)} wanted",
        lever=Lever(
            gain_bytes=idle,
            enough=True,
            basis="measured",
            says="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets a segment grow instead",
        ),
        confidence="likely",
    )


def activation_reserve(subject: Subject) -> Iterator[Finding]:
    """The server is ready, and little is left for the activations of serving."""
    if subject.run.outcome != "ready":
        return
    thumb = rule_of_thumb(subject)
    own = [process for process in subject.ranks if not is_cpu(process)]
    free = [(size, process) for process in own if (size := end_of_start(process)) is not None]
    if thumb is None or not free:
        return
    least, process = min(free, key=lambda pair: pair[0])
    if least >= thumb.bytes * SCARCE:
        return
    seat = next((one for one in subject.seats if one.process is process), None)
    lever = _less_static(subject, seat, thumb.bytes - least)
    turn = " This is a run-time shortage to come: lower --mem-fraction-static, do not raise it." if lever.flag else ""
    yield Finding(
        rule="activation_reserve",
        severity="warning",
        ranks=(label(process),),
        says=f"{gib(least)} GiB are free after the start, and {thumb.whose} rule of thumb sets {gib(thumb.bytes)} GiB"
        f" aside for graphs and activations of a server with these flags: a long prefill may run out of memory.{turn}",
        numbers={"free_bytes": least, "set_aside_bytes": thumb.bytes},
        formula=f"{thumb.whose} rule of thumb: {thumb.formula}",
        lever=lever,
        confidence="possible",
    )


def later_errors(subject: Subject) -> Iterator[Finding]:
    """Out of memory after the server was ready."""
    for later in subject.run.later:
        said = parse(f"{later.what}: {later.message or ''}")
        if said is not None:
            yield Finding(
                rule="out_of_memory",
                severity="error",
                ranks=(later.label,) if later.label else (),
                says=f"Out of memory after the server was ready{_in(later.phase)}. {figures_of(said)}A run-time"
                " shortage: lower"
                " --mem-fraction-static or --chunked-prefill-size, do not raise them",
                numbers=numbers_of(said),
                lever=Lever(flag="--mem-fraction-static", says="lower it by what was short, and some more"),
                confidence="certain",
            )


def survived_errors(subject: Subject) -> Iterator[Finding]:
    """Out of memory in a log, from which SGLang, a library or the rank went on: no cause of anything."""
    found = [remark for remark in subject.run.remarks if remark.kind == "out_of_memory"]
    if not found:
        return
    said = parse(found[0].text)
    lines = sum(remark.count for remark in found)
    more = "" if lines == 1 else f" and {lines - 1:,} more"
    yield Finding(
        rule="out_of_memory",
        severity="info",
        ranks=tuple(dict.fromkeys(remark.label for remark in found if remark.label is not None)),
        says=f"An allocation ran out of memory, and no process ended of it ({found[0].place.rpartition('/')[2]}{more})."
        f" {figures_of(said) if said is not None else ''}".rstrip(),
        numbers={"lines": lines} | ({} if said is None else numbers_of(said)),
        confidence="certain",
    )


def _finding(shortage: Shortage, rule: str, levers: tuple[Lever, ...]) -> Finding:
    said, step = shortage.said, shortage.step
    size = _size(step)
    at = f", at size {size}" if size is not None else ""
    what = step.attributes.get("graph")
    phase = f"{step.phase}{f' ({what})' if what and what != 'all' else ''}"
    where = f"{f' in {phase}' if step.phase else ''}{f' on {shortage.label}' if shortage.ranks else ''}{at}"
    return Finding(
        rule=rule,
        severity="error",
        ranks=shortage.ranks,
        says=_what(where, f"{figures_of(said)}{_enough(shortage)}".rstrip()),
        numbers=numbers_of(said)
        | {"failed_size": size, "free_bytes": step.free_bytes, "short_by_bytes": shortage.short_bytes},
        formula=None
        if shortage.short_bytes is None
        else f"{shown(shortage.wanted_bytes)} wanted - {shown(shortage.free_bytes or 0)}"
        f" free = {shown(shortage.short_bytes)} short",
        lever=levers[0] if levers else None,
        levers=levers[1:],
        notes=tuple(_notes(step, shortage)),
        confidence="certain",
    )


def _what(where: str, figures: str) -> str:
    """Say where it struck and with which figures; the title has said what."""
    if where:
        return f"Out of memory{where}. {figures}".rstrip()
    return figures or "The message names no figure, no phase and no rank."


def _size(step: Step) -> Any:
    """Return the size that was being captured: as recorded, or as the bar in a log showed it last."""
    return step.attributes.get("failed_size") or step.attributes.get("last_size")


def _enough(shortage: Shortage) -> str:
    """Say that more was free than was wanted: then no figure says by how much any flag would have to move."""
    if not shortage.was_enough or shortage.said.free is not None:
        return ""  # the message's own figures say so themselves
    return (
        f"{shown(shortage.free_bytes or 0)} free would have been enough: memory was in pieces, a limit was set, or that"
        " figure is of another moment"
    )


def _notes(step: Step, shortage: Shortage) -> Iterator[str]:
    where = step.attributes.get("failed_at") or (None if step.failure is None else raised_at(first_of(step.failure)))
    if where:
        yield f"asked for in {where}"
    if step.phase == UNKNOWN_PHASE:
        rank = "" if shortage.ranks else ", and on which rank,"
        yield f"in which phase{rank} is not in the text: after the KV pools a lower fraction makes room"
    sizes = sizes_of(step.attributes.get("sizes"))
    if step.phase == "graph.capture" and step.attributes.get("last_size") is not None:
        yield f"size {step.attributes['last_size']} is what the progress bar showed last: one rank draws it for all"
    elif step.phase == "graph.capture" and _size(step) is None:
        yield "no size was being captured when it died, or it was not recorded"
    elif sizes:
        yield f"{len(sizes)} sizes were to be captured, from {max(sizes)} down to {min(sizes)}"
    if step.free_bytes is not None and step.free_bytes != shortage.said.free:
        yield f"free when the step had failed, as read: {gib(step.free_bytes)} GiB"


def _capture_levers(subject: Subject, shortage: Shortage) -> Iterator[Lever]:
    if shortage.was_enough:
        return
    yield from _make_way(subject, shortage)
    batch = decode_max_bs(subject)
    if batch and batch > 1:
        yield Lever(
            flag="--cuda-graph-max-bs",
            value=batch // 2,
            basis="scaled",
            says=f"buffers and graphs grow with the largest batch, {batch}: half of it asks for about half here, and of"
            " the sizes that follow; `plan` with it says whether that is enough",
        )


def _are_others_there(shortage: Shortage) -> bool:
    """Say whether others hold memory of the device, by the message or by NVML's lists."""
    said = shortage.said
    named = bool(said.others) or said.unnamed is not None
    return named or any(one.kind == "foreign" for one in shortage.process.neighbours)


def _load_levers(subject: Subject, shortage: Shortage) -> Iterator[Lever]:
    if shortage.step.phase != "weights.load" or shortage.pools_made:  # a draft that is loaded after the target's pools
        yield from _make_way(subject, shortage)
    elif shortage.was_enough:
        return
    elif not _are_others_there(shortage):  # what they hold comes first
        free = gib(shortage.step.free_before_bytes)
        says = f"the weights alone are more than the {free} GiB that were free: more devices, or quantized weights"
        yield Lever(flag="--tp", basis="unknown", says=says)


def _make_way(subject: Subject, shortage: Shortage) -> Iterator[Lever]:
    """What the KV pools can give up."""
    seat = next((one for one in subject.seats if one.process is shortage.process), None)
    why = why_lowering_frees_nothing(shortage)
    if shortage.short_bytes is None or (why is not None and not shortage.is_capped):
        return
    if why is not None:
        token = None if seat is None else token_bytes(seat.worker)
        fewer = "" if not token else f" by {number(-(-shortage.short_bytes // token))} tokens at least"
        yield Lever(flag="--max-total-tokens", says=f"lower it{fewer}: {why}", gain_bytes=shortage.short_bytes)
        return
    yield _lowered(subject, seat, shortage.short_bytes, shortage.said.total)


def _by_unknown(short: int, total: int | None) -> str:
    """Say what to try where the fraction or the pre-load memory is not known.

    Worked example: 471.25 MiB of a card of 140.06 GiB are 0.0033 of it, and more of what was free before the weights.
    """
    says = (
        f"lower it: {mib(short)} more are needed beside the budget. By how much is unknown: the fraction in force and"
        " the pre-load memory were not recorded"
    )
    if not total:
        return f"{says}; try {FIRST_STEP} less first"
    tried = math.ceil(short / total / FIRST_STEP) * FIRST_STEP
    return f"{says}; it is more than {mib(short)} / {gib(total)} GiB = {short / total:.4f}: try {tried:.2f} less first"


def _lowered(subject: Subject, seat: Seat | None, short: int, total: int | None = None) -> Lever:
    """Return a fraction that leaves `short` bytes more beside the static budget, and what SGLang would set aside."""
    budget = None if seat is None else seat.budget
    if seat is None or budget is None or not budget.pre_load_bytes or budget.mem_fraction_static is None:
        return Lever(flag="--mem-fraction-static", says=_by_unknown(short, total))
    step = short / budget.pre_load_bytes
    needed = budget.mem_fraction_static - step
    least = f"{mib(short)} / {gib(budget.pre_load_bytes)} GiB = {step:.5f} is the least"
    top = highest_of(subject, seat)
    value = math.floor(min(needed, 1.0 if top is None else top.fraction) * 1000) / 1000
    if value <= (budget.minimum_viable_fraction or 0):
        return Lever(
            says=f"no lower fraction makes that room: {mib(short)} more beside the budget leave no KV cache. Free"
            " the card"
            " first; serving less at once (--chunked-prefill-size) helps only with a fraction that is given, for"
            " SGLang's"
            " default rises with it",
        )
    why = "more allocations follow the one that failed, so leave some beside" if top is None else f"{top.says}"
    return Lever(
        flag="--mem-fraction-static",
        value=value,
        gain_bytes=round((budget.mem_fraction_static - value) * budget.pre_load_bytes),
        basis="measured" if top is None else top.basis,
        says=f"lower it: {least}; {why}",
    )


def _less_static(subject: Subject, seat: Seat | None, short: int) -> Lever:
    """Return what makes room beside the pools of a server that runs."""
    if seat is not None and is_capped(seat.worker):
        return Lever(flag=None, says="--max-total-tokens limits the KV cache: lower that, the fraction moves nothing")
    if seat is not None and floor_binds(seat.budget):
        return Lever(flag=None, says=FLOOR_DECIDES)
    return _lowered(subject, seat, short)


def _in(phase: str | None) -> str:
    return f", in {phase}" if phase else ""


def growth(subject: Subject) -> Iterator[Finding]:
    """Memory of others moved while the server started: a figure taken then may be theirs."""
    for process in subject.ranks:
        foreign = [one for one in process.neighbours if one.kind == "foreign"]
        if not foreign:
            continue
        lists = lists_of(process)
        swings = [(one, _swing(one, lists)) for one in foreign]
        size = sum(swing for _, swing in swings)
        if size >= LARGE // 4:
            names = ", ".join(f"pid {one.pid} {one.name or ''}".rstrip() for one, swing in swings[:3] if swing)
            yield _growth(subject, process, names, size)


def _growth(subject: Subject, process: Process, names: str, size: int) -> Finding:
    return Finding(
        rule="growth",
        severity="warning",
        ranks=(label(process),),
        says=f"Memory of others on {gpu(process, subject)} moved by {gib(size)} GiB while the server started ({names}):"
        " costs measured then may be theirs, and the next start may find another amount free",
        numbers={"moved_bytes": size},
        lever=Lever(says="start again when nothing else starts or ends on these devices"),
        confidence="certain",
    )


def _swing(one: Neighbour, lists: Lists) -> int:
    """Return by how much a process's memory moved between the first and the last list."""
    known = [table.get((one.pid, one.start_ticks), 0) for table in lists.tables]
    if known:
        return max(known) - min(known)
    return (one.peak_bytes or 0) - (0 if one.gone else one.bytes or 0)
