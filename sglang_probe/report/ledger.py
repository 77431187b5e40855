"""What a rank's device memory is spent on at the end, and the way from an idle card to the pre-load memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from rich.text import Text

from sglang_probe.figures import GIB, UNKNOWN, gib, listed, number, shares
from sglang_probe.report.bars import bar, legend
from sglang_probe.report.layout import Width, paragraph
from sglang_probe.report.overview import has_strangers, shares_of, spent
from sglang_probe.report.plain import printable
from sglang_probe.timeline.ledger_rows import KEYS, NAMES
from sglang_probe.timeline.model import Neighbour, PreLoad, Process, Step
from sglang_probe.timeline.processes import is_cpu, last_ledger

OTHERS: Final = 64 << 20
"""Bytes in use on a card before a process came that only others can account for."""
REASONS: Final = {
    "pid_namespace": "NVML's list does not have this process: pids of a container are not the host's",
    "others_moved": "other processes' memory moved meanwhile",
    "no_process_list": "no list of the device's processes was read by then",
    "process_bytes_unread": "NVML does not say what the listed processes hold",
    "no_reading_before_context": "nothing was read before this process had a context",
    "not_read": "not read",
    "not_apart": "a reading is missing between two of them",
    "nvml_total_unread": "NVML's total was not read",
    "totals_disagree": "NVML's total is below CUDA's",
}
SHOWN: Final = GIB // 2000
"""Bytes from which a row is not 0.000; the rest of them is one line."""
MANY: Final = 4
"""Neighbours named in one line."""
MANY_OTHERS: Final = 8
"""The same, of ranks that another stands for."""
GAP: Final = 3
"""Columns between two rows that stand side by side."""


def ledger_lines(
    process: Process, width: Width, indent: str, *, others: Sequence[Process] = (), bars: bool = False
) -> list[Text]:
    """Return the ledger of a rank at its end; nothing where there is none, or on a CPU, where it has no rows. `others`
    are ranks that it stands for: of them only the strangers on their cards are named."""
    step = last_ledger(process)
    if step is None or step.ledger is None or is_cpu(process):
        return []
    total = step.ledger_total_bytes or 0
    when = "at the end" if step.ledger_as_of == "after" else "at the last reading"
    lines = paragraph(f"Memory {when} (GiB{_of(step)})", width, style="bold")
    amounts = {key: getattr(step.ledger, key) for key in KEYS}
    off = step.ledger_precision_bytes
    always = ("free",) if step.ledger_total_bytes is None else ("free", "unexplained")
    shown = [key for key, amount in amounts.items() if key in always or (amount is not None and abs(amount) >= SHOWN)]
    cells = [_cell(key, amounts[key], total, off.get(key)) for key in shown]
    if width is None:
        lines += [Text(f"{name}: {amount} GiB, {share}") for name, amount, share in cells]
    else:
        columns = [f"{name:<17} {amount:>10} {share:>7}" for name, amount, share in cells]
        lines += [Text(f"{indent}{row}") for row in _rows(columns, width - len(indent))]
        lines += _bar(process, width, indent) if bars else []
    for said in [*_neighbours(process, others), *_unknowns(step)]:
        lines += paragraph(said, width, indent, indent * 2)
    return lines


def _bar(process: Process, width: int, indent: str) -> list[Text]:
    parts = spent(process)
    foreign = has_strangers([parts])
    drawn = bar(shares_of(parts, foreign=foreign), width)
    return [] if drawn is None else [drawn, *paragraph(legend(foreign=foreign), width, indent)]


def _of(step: Step) -> str:
    if step.ledger_total_bytes is None:
        return "; the log names no total, so they sum to none"
    whose = "NVML's total" if step.ledger_total_source == "nvml_total_bytes" else "CUDA's total"
    return f" of {gib(step.ledger_total_bytes, step.ledger_precision_bytes.get('unexplained'))}, {whose}"


def _cell(key: str, amount: int | None, total: int, precision: int | None) -> tuple[str, str, str]:
    share = UNKNOWN if amount is None or total <= 0 else f"{100 * amount / total:.1f}%"
    return NAMES[key], gib(amount, precision), share


def _rows(cells: Sequence[str], room: int) -> list[str]:
    """Return the cells in two columns, or in one where two do not fit."""
    column = max(map(len, cells))
    if 2 * column + GAP > room:
        return list(cells)
    half = (len(cells) + 1) // 2
    pairs = zip_longest(cells[:half], cells[half:], fillvalue="")
    return [f"{left:<{column}}{' ' * GAP}{right}".rstrip() for left, right in pairs]


def _neighbours(process: Process, others: Sequence[Process]) -> Iterator[str]:
    """Name the processes that were on the device and are none of the run, those that hold most first."""
    own = [_neighbour(one) for one in _foreign([process])]
    if own:
        yield f"foreign on this device: {listed(own, MANY)}"
    whose = {id(one): f"on {other.label}'s: {_neighbour(one)}" for other in others for one in _foreign([other])}
    if whose:
        by_bytes = [whose[id(one)] for one in _foreign(others)]
        yield f"foreign on the others' devices: {listed(by_bytes, MANY_OTHERS)}"


def _foreign(processes: Sequence[Process]) -> list[Neighbour]:
    found = [one for process in processes for one in process.neighbours if one.kind == "foreign"]
    return sorted(found, key=lambda one: -(one.peak_bytes or 0))


def _neighbour(one: Neighbour) -> str:
    name = f" {printable(one.name)}" if one.name else ""
    about = [printable(one.user)] if one.user else []
    if one.began_before_s is not None:
        when = "before" if one.began_before_s >= 0 else "after"
        about.append(f"began {abs(one.began_before_s):,.0f} s {when} this rank")
    about += ["left over: its parent has ended"] if one.left_over else []
    about += ["gone since"] if one.gone else []
    said = f" ({', '.join(about)})" if about else ""
    return f"pid {one.pid}{name} {gib(one.peak_bytes)} GiB{said}"


def _unknowns(step: Step) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for key, reason in step.ledger_reasons.items():
        if key != "unexplained":  # without a total; the title says so
            name = "draft weights" if key == "weights_draft" else NAMES.get(key, key)  # a comma would read as two
            by_reason.setdefault(reason, []).append(name)
    into = "" if step.ledger_total_bytes is None else ", so in unexplained"
    for reason, names in by_reason.items():
        yield f"unknown{into}: {listed(names, len(KEYS))} ({REASONS.get(reason, printable(reason))})"


def pre_load_lines(process: Process, width: Width, indent: str) -> list[Text]:
    """Return the way from an idle card to the pre-load memory, and what the custom all-reduce costs."""
    way = process.pre_load
    if way is None:
        return []
    lines = paragraph("From an idle card to the pre-load memory (GiB)", width, style="bold")
    for said in _way(way):
        lines += paragraph(said, width, indent, indent * 2)
    return lines


def _way(way: PreLoad) -> Iterator[str]:
    """Worked example: 139.797 idle free - 0.512 context - 0.091 world group ... = 138.280 pre-load memory."""
    if way.idle_free_bytes is not None and way.other_bytes is not None:
        terms = _terms(way)
        # With others on the card it was not idle, and what was free is no property of it.
        shared = way.unlisted_bytes is not None and way.unlisted_bytes > OTHERS
        first = "free before this process" if shared else "idle free"
        yield f"{gib(way.idle_free_bytes)} {first}{terms} = {gib(way.pre_load_bytes)}"
    else:
        known = [f"{name} {gib(taken)}" for name, taken in _taken(way) if taken is not None]
        yield f"{', '.join(known)}; then {gib(way.pre_load_bytes)} free"
        if way.idle_free_bytes is None:
            yield f"idle free: {UNKNOWN} ({printable(way.idle_free_reason or REASONS['not_read'])})"
    if way.not_separable is not None:
        reason = REASONS.get(way.not_separable, printable(way.not_separable))
        yield f"as measured; another process's share in it cannot be ruled out ({reason})"
    if way.unlisted_bytes is not None:
        before = f"NVML's total {gib(way.nvml_total_bytes)} - {gib(way.idle_free_bytes)} free"
        held = f", and {gib(way.unlisted_bytes)} in use" if abs(way.unlisted_bytes) >= SHOWN else ""
        yield f"the driver's reserve comes before it: {before} = {gib(way.driver_reserved_bytes)} reserved{held}"
    if way.custom_allreduce_bytes is not None:
        yield f"the custom all-reduce costs {gib(way.custom_allreduce_bytes)} GiB{_tokens(way)}"


def _taken(way: PreLoad) -> tuple[tuple[str, int | None], ...]:
    return (
        ("context", way.context_bytes),
        ("world group", way.world_group_bytes),
        ("communicators", way.communicators_bytes),
        ("custom all-reduce", way.custom_allreduce_bytes),
        ("given back" if (way.other_bytes or 0) < 0 else "other", way.other_bytes),
    )


def _terms(way: PreLoad) -> str:
    """Return what was taken on the way, in figures that add up."""
    known = [(name, taken) for name, taken in _taken(way) if taken is not None]
    figures = shares([taken for _, taken in known], way.idle_free_bytes or 0, way.pre_load_bytes or 0)
    shown = [(name, figure) for (name, _), figure in zip(known, figures, strict=True) if float(figure)]
    return "".join(f" {'+' if figure.startswith('-') else '-'} {figure.lstrip('-')} {name}" for name, figure in shown)


def _tokens(way: PreLoad) -> str:
    if way.custom_allreduce_tokens is not None:
        return f", or {number(round(way.custom_allreduce_tokens))} KV tokens"
    reason = way.custom_allreduce_tokens_reason
    return f"; in KV tokens: {UNKNOWN} ({printable(reason)})" if reason else ""
