"""All ranks of a run at a glance: a row for those that agree, what sets the others apart, and a bar on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from sglang_probe.figures import UNKNOWN, gib
from sglang_probe.report.apart import SHOWN, Middle, differences
from sglang_probe.report.apart_facts import beside, ranges
from sglang_probe.report.bars import LEGEND, PARTS, bar
from sglang_probe.report.fold import Fold
from sglang_probe.report.layout import Width, folded, paragraph
from sglang_probe.report.plain import printable
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Process, Step
from sglang_probe.timeline.processes import is_cpu, last_ledger

INDENT: Final = "  "
COLUMNS: Final = ("pre-load", *(part.name for part in PARTS))
FIGURE: Final = 9
"""Columns of a figure, with the gap before it."""


class Spent(NamedTuple):
    """What a rank's memory is spent on at its last ledger, in bytes; `weights` to `free` sum to the card's total."""

    pre_load: int | None
    weights: int | None
    kv: int | None
    graphs: int | None
    other: int | None
    """All else, explained or not."""
    free: int | None


def spent(process: Process) -> Spent:
    """Return a rank's memory in the few parts that decide. On a CPU, where it has no ledger, what its workers hold."""
    step = last_ledger(process)
    if step is None or step.ledger is None or is_cpu(process):
        return _without_ledger(process)
    ledger, total = step.ledger, step.ledger_total_bytes
    weights, kv = _sum(ledger.weights_target, ledger.weights_draft), _sum(ledger.kv_pool, ledger.request_pool)
    told = _sum(weights, kv, ledger.graphs, ledger.free)
    other = None if total is None or ledger.free is None or told is None else total - told
    return Spent(_pre_load(process), weights, kv, ledger.graphs, other, ledger.free)


def _without_ledger(process: Process) -> Spent:
    loaded = () if is_cpu(process) else process.workers  # there it is what the host's memory did meanwhile
    weights = _sum(*(worker.weights_bytes for worker in loaded))
    kv = _sum(*(None if worker.kv is None else worker.kv.bytes for worker in process.workers))
    free = [step.free_bytes for step in process.steps if step.free_bytes is not None]
    roots = [step.free_bytes for step in process.steps if step.depth == 0 and step.free_bytes is not None]
    return Spent(_pre_load(process), weights, kv, None, None, next(reversed(roots or free), None))


def _pre_load(process: Process) -> int | None:
    """Return what was free on this rank itself before its weights, where known; else what SGLang took for all."""
    if process.pre_load is not None and process.pre_load.pre_load_bytes is not None:
        return process.pre_load.pre_load_bytes
    budget = next((worker.budget for worker in process.workers if worker.budget is not None), None)
    if budget is None:
        return None
    return budget.pre_load_bytes if budget.pre_load_local_bytes is None else budget.pre_load_local_bytes


def _sum(*amounts: int | None) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def overview(
    folds: Sequence[Fold], rest: Sequence[Fold], middle: Middle | None, width: Width, *, bars: bool = False
) -> list[Text]:
    """Return a row for each group of ranks, and one for those of `rest` together; then in what each differs."""
    rows = [_row(fold.processes, fold.labels, fold.shown) for fold in folds]
    others = [process for fold in rest for process in fold.processes]
    if others:
        worst = min(rest, key=least_free).shown
        rows.append(_row(others, [label for fold in rest for label in fold.labels], worst, "others"))
    is_drawn = bars and width is not None
    lines = paragraph(f"The ranks at the end (GiB){f'; {LEGEND}' if is_drawn else ''}", width, style="bold")
    if width is None:
        lines += [text for row in rows for text in paragraph(_sentence(row), width)]
    else:
        room = width - FIGURE * len(COLUMNS)
        lines.append(Text(f"{'ranks':<{room}}{''.join(f'{column:>{FIGURE}}' for column in COLUMNS)}"))
        for row in rows:
            lines += _lines(row, room)
            drawn = bar(row.figures[1:], width) if is_drawn else None
            lines += [drawn] if drawn is not None else []
    if width is not None and any(value is None for row in rows for value in row.figures):
        lines += paragraph(f'"{UNKNOWN}": not known, or never come to', width, INDENT, INDENT * 2)
    for said in _notes(folds, middle, rows):
        lines += paragraph(said, width, INDENT, INDENT * 2)
    return lines


class _Row(NamedTuple):
    name: str
    figures: tuple[int | None, ...]
    """Of one rank, so that they add up."""
    spread: tuple[int | None, ...]
    precision: int | None
    size: int
    whose: str


def least_free(fold: Fold) -> tuple[bool, int]:
    """Return how much a group has free at its end, to be sorted by: least first, unknown last."""
    free = spent(fold.shown).free
    return free is None, free or 0


def _row(processes: Sequence[Process], labels: Sequence[str], shown: Process, name: str = "") -> _Row:
    figures = spent(shown)
    columns = [[value for value in column if value is not None] for column in zip(*map(spent, processes), strict=True)]
    spread = tuple(_farthest(values, one) for values, one in zip(columns, figures, strict=True))
    count = f"{len(labels):,} {name or 'ranks'}: " if len(labels) > 1 else ""
    precision = _precision(last_ledger(shown))
    return _Row(f"{count}{named(labels)}", figures, spread, precision, len(labels), shown.label or shown.role)


def _precision(step: Step | None) -> int | None:
    return None if step is None else max(step.ledger_precision_bytes.values(), default=None)


def _farthest(values: Iterable[int], own: int | None) -> int | None:
    return None if own is None else max((abs(value - own) for value in values), default=0)


def _lines(row: _Row, room: int) -> Iterator[Text]:
    """Yield a row: its name in as many lines as it takes, and below the figures by how much a rank is off them."""
    names = folded(printable(row.name), room - 1, "", INDENT, break_words=True)
    figures = ["".join(f"{gib(value, row.precision):>{FIGURE}}" for value in row.figures)]
    if any((value or 0) >= SHOWN for value in row.spread):
        cells = (f"+-{gib(value, row.precision)}" if (value or 0) >= SHOWN else "" for value in row.spread)
        figures.append("".join(f"{cell:>{FIGURE}}" for cell in cells))
    for position in range(max(len(names), len(figures))):
        name = names[position] if position < len(names) else ""
        yield Text(f"{name:<{room}}{figures[position] if position < len(figures) else ''}".rstrip())


def _sentence(row: _Row) -> str:
    cells = []
    for column, value, far in zip(COLUMNS, row.figures, row.spread, strict=True):
        off = f" +- {gib(far, row.precision)}" if (far or 0) >= SHOWN else ""
        cells.append(f"{column} {'unknown' if value is None else gib(value, row.precision)}{off}")
    return f"{row.name.replace(': ', ', ', 1)}: {', '.join(cells)}"


def _notes(folds: Sequence[Fold], middle: Middle | None, rows: Sequence[_Row]) -> Iterator[str]:
    several = [row for row in rows if row.size > 1]
    if any((value or 0) >= SHOWN for row in several for value in row.spread):
        yield f"{_whose(several)}; +- is how far the farthest rank is off them"
    for fold in folds:
        if middle is not None and not middle.has(fold.processes[0]):
            said = [apart_line(fold, middle), *ranges(fold)]
            yield f"{named(fold.labels)}, {'; '.join(said)}"
        elif said := beside(fold):
            yield f"{named(fold.labels)}: {'; '.join(said)}"


def _whose(rows: Sequence[_Row]) -> str:
    """Return whose figures stand in the rows of several ranks: `the figures are those of TP0`."""
    if len(rows) == 1:
        return f"the figures are those of {rows[0].whose}"
    return f"the figures of {len(rows)} rows of several ranks are those of {', '.join(row.whose for row in rows)}"


def apart_line(fold: Fold, middle: Middle) -> str:
    """Return in what a group differs: `against the median of 511 ranks: 0.293 GiB less free after ...`."""
    others = middle.fold.labels
    against = others[0] if len(others) == 1 else f"the median of {len(others):,} ranks"
    return f"against {against}: {'; '.join(differences(fold, middle))}"
