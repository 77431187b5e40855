"""All ranks of a run at a glance: a row for those that agree, what sets the others apart, and a bar on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.text import Text

from sglang_probe.explain.subject import label
from sglang_probe.figures import UNKNOWN, gib
from sglang_probe.report.apart import SHOWN, Middle, differences
from sglang_probe.report.apart_facts import beside, ranges
from sglang_probe.report.bars import FOREIGN, PARTS, bar, legend
from sglang_probe.report.facts import TENANT
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
LEAST_NAME: Final = 16
"""Columns that the ranks have at least: on a narrower page a row is a sentence."""


class Spent(NamedTuple):
    """What a rank's memory is spent on at its last ledger, in bytes; `weights` to `free` sum to the card's total."""

    pre_load: int | None
    weights: int | None
    kv: int | None
    graphs: int | None
    foreign: int | None
    """Other processes' that are none of the run."""
    other: int | None
    """All else, explained or not."""
    free: int | None


def spent(process: Process) -> Spent:
    """Return a rank's memory in the few parts that decide; what its ledger does not say, as its workers or steps do.

    A log's ledger may lack the pools whose cost the log gives: 59.64 before and 12.45 after `kv.pool all` is 47.19.
    """
    step = last_ledger(process)
    told = _without_ledger(process)
    if step is None or step.ledger is None or is_cpu(process):
        return told
    ledger, total = step.ledger, step.ledger_total_bytes
    weights = _first(_sum(ledger.weights_target, ledger.weights_draft), told.weights)
    kv = _first(_sum(ledger.kv_pool, ledger.request_pool), told.kv)
    known = _sum(weights, kv, ledger.graphs, ledger.foreign, ledger.free)
    other = None if total is None or ledger.free is None or known is None else total - known
    return Spent(_pre_load(process), weights, kv, ledger.graphs, ledger.foreign, other, ledger.free)


def has_strangers(rows: Iterable[Spent]) -> bool:
    """Say whether foreign memory on any of the cards is worth a column."""
    return any((row.foreign or 0) >= TENANT for row in rows)


def shares_of(row: Spent, *, foreign: bool) -> tuple[int | None, ...]:
    """Return the parts in the order of `PARTS`; without a part for strangers they are in `other`."""
    if foreign or row.other is None:
        return row[1:] if foreign else row._replace(foreign=None)[1:]
    return row._replace(foreign=None, other=row.other + (row.foreign or 0))[1:]


def _without_ledger(process: Process) -> Spent:
    """Return what workers and steps tell. On a CPU no cost counts: it is what the host's memory did meanwhile."""
    costs = not is_cpu(process)
    weights = _sum(*(worker.weights_bytes for worker in process.workers)) if costs else None
    pools = _sum(*(None if worker.kv is None else worker.kv.bytes for worker in process.workers))
    kv = _first(pools, _sum(*map(_cost, _pool_steps(process))) if costs else None)
    free = [step.free_bytes for step in process.steps if step.free_bytes is not None]
    roots = [step.free_bytes for step in process.steps if step.depth == 0 and step.free_bytes is not None]
    return Spent(_pre_load(process), weights, kv, None, None, None, next(reversed(roots or free), None))


def _pool_steps(process: Process) -> list[Step]:
    """Return the steps in which pools were made, without those inside another."""
    made = [step for step in process.steps if step.phase == "kv.pool"]
    inside = {step.id for step in made}
    return [step for step in made if step.parent not in inside]


def _cost(step: Step) -> int | None:
    return step.cost_bytes if step.state == "ok" else None


def _first(*amounts: int | None) -> int | None:
    return next((amount for amount in amounts if amount is not None), None)


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
    groups = [(fold.processes, fold.labels, fold.shown, "") for fold in folds]
    others = tuple(process for fold in rest for process in fold.processes)
    if others:
        worst = min(rest, key=least_free).shown
        groups.append((others, [label for fold in rest for label in fold.labels], worst, "others"))
    tables = [[spent(process) for process in processes] for processes, *_ in groups]
    foreign = has_strangers(one for table in tables for one in table)
    rows = [_row(*group, table, foreign=foreign) for group, table in zip(groups, tables, strict=True)]
    lines = _table(rows, _columns(foreign), width, bars=bars, foreign=foreign)
    if width is not None and any(value is None for row in rows for value in row.figures):
        lines += paragraph(f'"{UNKNOWN}": not known, or never come to', width, INDENT, INDENT * 2)
    for said in _notes(folds, middle, rows):
        lines += paragraph(said, width, INDENT, INDENT * 2)
    return lines


def _columns(foreign: bool) -> tuple[str, ...]:
    return tuple(column for column in COLUMNS if foreign or column != FOREIGN)


def _table(rows: Sequence[_Row], columns: Sequence[str], width: Width, *, bars: bool, foreign: bool) -> list[Text]:
    """Return the rows below their heading; on a page that is too narrow, or none, a row is a sentence."""
    is_drawn = bars and width is not None
    said = f"; {legend(foreign=foreign)}" if is_drawn else ""
    lines = paragraph(f"The ranks at the end (GiB){said}", width, style="bold")
    room = 0 if width is None else width - FIGURE * len(columns)
    if room >= LEAST_NAME:
        lines.append(Text(f"{'ranks':<{room}}{''.join(f'{column:>{FIGURE}}' for column in columns)}"))
    for row in rows:
        if room >= LEAST_NAME:
            lines += _lines(row, room)
        else:
            lines += paragraph(_sentence(row, columns, width), width, "" if width is None else INDENT, INDENT * 2)
        drawn = bar(row.shares, width) if is_drawn and width is not None else None
        lines += [drawn] if drawn is not None else []
    return lines


class _Row(NamedTuple):
    name: str
    figures: tuple[int | None, ...]
    """As many as there are columns: of one rank, so that they add up."""
    spread: tuple[int | None, ...]
    precision: int | None
    shares: tuple[int | None, ...]
    """What a bar is drawn of, in the order of `PARTS`."""
    size: int
    whose: str


def least_free(fold: Fold) -> tuple[bool, int]:
    """Return how much a group has free at its end, to be sorted by: least first, unknown last."""
    free = spent(fold.shown).free
    return free is None, free or 0


def _row(
    processes: Sequence[Process],
    labels: Sequence[str],
    shown: Process,
    name: str,
    table: Sequence[Spent],
    *,
    foreign: bool,
) -> _Row:
    own = spent(shown)
    figures = (own.pre_load, *shares_of(own, foreign=foreign))
    parts = [(one.pre_load, *shares_of(one, foreign=foreign)) for one in table]
    known = [[value for value in column if value is not None] for column in zip(*parts, strict=True)]
    spread = tuple(_farthest(values, one) for values, one in zip(known, figures, strict=True))
    columns = [place for place, column in enumerate(COLUMNS) if foreign or column != FOREIGN]
    count = f"{len(labels):,} {name or 'ranks'}: " if len(labels) > 1 else ""
    return _Row(
        name=f"{count}{named(labels)}",
        figures=tuple(figures[place] for place in columns),
        spread=tuple(spread[place] for place in columns),
        precision=_precision(processes[0]),
        shares=figures[1:],
        size=len(labels),
        whose=label(shown),
    )


def _precision(process: Process) -> int | None:
    """Return how far off the figures of a rank may be, of a log; None: exact."""
    step = last_ledger(process)
    ledger = max(step.ledger_precision_bytes.values(), default=None) if step is not None else None
    if ledger is not None:
        return ledger
    parts = [part for worker in process.workers for part in (worker.budget, worker.kv) if part is not None]
    known = [one.precision_bytes for one in (*process.steps, *parts)]
    known += [worker.weights_precision_bytes for worker in process.workers]
    return max((one for one in known if one is not None), default=None)


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


def _sentence(row: _Row, columns: Sequence[str], width: Width) -> str:
    cells = []
    for column, value, far in zip(columns, row.figures, row.spread, strict=True):
        off = f" +- {gib(far, row.precision)}" if (far or 0) >= SHOWN else ""
        unknown = "unknown" if width is None else UNKNOWN
        cells.append(f"{column} {unknown if value is None else gib(value, row.precision)}{off}")
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
