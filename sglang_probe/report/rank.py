"""The block of one rank: its steps, its budgets, what its memory is spent on, how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from sglang_probe.figures import UNKNOWN, exception_type, gib, listed
from sglang_probe.report.apart import spread
from sglang_probe.report.budget import budget_lines
from sglang_probe.report.fold import Fold
from sglang_probe.report.layout import Width, block, paragraph
from sglang_probe.report.ledger import ledger_lines, pre_load_lines
from sglang_probe.report.outcome import process_name
from sglang_probe.report.plain import printable
from sglang_probe.report.steps import Layout, step_name, steps_table
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Device, Failure, Process, Step, Worker
from sglang_probe.timeline.processes import is_cpu

INDENT = "  "


def rank_block(
    fold: Fold, width: Width, layout: Layout | None = None, *, apart: str | None = None, bars: bool = False
) -> list[Text]:
    """Return everything about a process, or about ranks that agree, to be printed one below the other; `apart` says in
    what they differ from the others, and `bars` whether their memory has one."""
    process = fold.shown
    parts = _head(fold, width, apart)
    if process.steps:
        parts += steps_table(process, width, layout)
    else:
        parts += paragraph("no memory step was recorded", width, INDENT)
    word = "unknown" if width is None else UNKNOWN
    for note in [*_unknowns(process, word), *_turned_off(process), *_spread(fold)]:
        parts += paragraph(note, width, INDENT, INDENT * 2)
    alone = process.rank is not None and process.rank.world is not None and process.rank.world.size == 1
    others = [one for one in fold.processes if one.label != process.label]
    sections = [pre_load_lines(process, width, INDENT)]
    sections += [_worker(worker, width, alone) for worker in process.workers]
    sections += [ledger_lines(process, width, INDENT, others=others, bars=bars)]
    sections += [failure_lines(failure, width) for failure in failures(process.steps)]
    sections += [paragraph(ending, width, hanging=INDENT, style="bold") for ending in _endings(process)]
    for section in filter(None, sections):
        parts += [Text(), *section]
    return parts


def failures(steps: tuple[Step, ...]) -> list[Failure]:
    """Return each exception once, in the words of the innermost step that it passed."""
    found: dict[str, tuple[int, Failure]] = {}
    for step in steps:
        if step.failure is not None:
            key = step.failure.id or step.id
            depth = step.depth if step.failure.message is not None else -1
            if key not in found or depth > found[key][0]:
                found[key] = (depth, step.failure)
    return [failure for _, failure in found.values()]


def failure_lines(failure: Failure, width: Width) -> list[Text]:
    """Return type, message and place of an exception."""
    first, *others = (failure.message or "").splitlines() or [""]
    title = f"{exception_type(failure.type)}: {first or 'without a message'}"
    lines = paragraph(title, width, hanging=INDENT, style="bold red") + block(others, width, INDENT)
    return lines + (paragraph(f"raised in {failure.raised_in}", width, INDENT) if failure.raised_in else [])


def _head(fold: Fold, width: Width, apart: str | None) -> list[Text]:
    """Return who it is about; of several ranks whose figures these are."""
    process, count = fold.shown, len(fold.processes)
    tightest = "" if fold.tightest is None else ", the tightest rank"
    if count == 1:
        lines = paragraph(f"{_title(process)}{tightest}", width, "== ", "   ", style="bold")
    else:
        lines = paragraph(f"{count:,} ranks that agree: {named(fold.labels, None)}", width, "== ", "   ", style="bold")
        lines += paragraph(f"the figures are those of {_title(process)}{tightest}", width, INDENT)
    return lines if apart is None else lines + paragraph(apart, width, INDENT, INDENT * 2)


def _spread(fold: Fold) -> Iterator[str]:
    """Say how far the ranks of a block are apart."""
    found = list(spread(fold))
    yield from found
    if not found and len(fold.processes) > 1 and not is_cpu(fold.shown):
        all_of = "both" if len(fold.processes) == 2 else f"all {len(fold.processes):,}"
        yield f"every cost prints the same on {all_of} ranks"


def _title(process: Process) -> str:
    pid = None if process.pid is None else f"pid {process.pid}"
    where = ", ".join(printable(one) for one in (process.host, pid) if one is not None) or "as its log tells"
    return f"{process_name(process)}: {where}{_device(process.device)}"


def _device(device: Device | None) -> str:
    if device is None:
        return ""
    if device.kind == "cpu":
        return f", CPU: its memory is the host's, {gib(device.total_bytes)} GiB"
    index = "GPU" if device.index is None else f"GPU {device.index}"
    total = "" if device.total_bytes is None else f" of {gib(device.total_bytes)} GiB"
    return f", {index}{f' {device.name}' if device.name else ''}{total}"


def _unknowns(process: Process, word: str) -> Iterator[str]:
    """Say once for each reason why figures are missing, which `word` stands for."""
    by_reason: dict[str, list[str]] = {}
    for step in process.steps:
        if step.null_reason is not None and step.state in {"ok", "error"}:  # of the others their state is the reason
            by_reason.setdefault(step.null_reason, []).append(step_name(step))
    for reason, names in by_reason.items():
        yield f'"{word}" in {listed(names, 3)}: {reason}'


def _turned_off(process: Process) -> Iterator[str]:
    """Name what SGLang came to and did not build."""
    for step in process.steps:
        if step.phase == "graph.capture" and step.attributes.get("captured") is False:
            yield f"{step_name(step)}: no graph was captured"
        if step.attributes.get("disabled") is True:
            reason = step.attributes.get("disabled_reason")
            yield f"{step_name(step)}: disabled{f' ({reason})' if reason else ''}"


def _worker(worker: Worker, width: Width, alone: bool) -> list[Text]:
    lines = budget_lines(worker, alone=alone)
    if not lines:
        return []
    which = worker.worker if worker.draft_index is None else f"{worker.worker} {worker.draft_index}"
    what = "KV budget" if worker.budget is not None else "KV cache"
    title = Text(f"{what}, {printable(which)} (GiB)", style="bold")
    return [title, *(text for line in lines for text in _folded(line, width))]


def _folded(line: str, width: Width) -> list[Text]:
    # The alignment of a formula's second line is part of it, so leading blanks are kept apart from the wrapping.
    own = line[: len(line) - len(line.lstrip(" "))]
    return paragraph(line.lstrip(" "), width, INDENT + own, INDENT * 2 + own)


def _endings(process: Process) -> Iterator[str]:
    """Say where a process was when it ended without an end or an error of its own."""
    unfinished = [step for step in process.steps if step.state in {"died", "interrupted", "open"}]
    if unfinished:
        step = max(unfinished, key=lambda step: step.depth)
        yield f"{step.state} in {step_name(step)}{_why_unfinished(step, process)}"


def _why_unfinished(step: Step, process: Process) -> str:
    """Return why a step has no end. A file that breaks off in a line is reason enough, unless it is known to have
    died: then it broke off as it died."""
    told = f": {step.state_reason}" if step.state_reason else ""
    if not process.torn_tail or process.alive:
        return told
    if step.state == "died":
        return f"{told}; the last line of its file is cut off"
    return ": the last line of this process's file is cut off there, so what came after is not known"
