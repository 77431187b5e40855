"""Ranks beside phases: what each took, how long it lasted, what was free after it, how it ended; many ranks folded.

What stands out does so by its memory or by how it ended: seconds alone are told apart, and set no rank apart.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from sglang_probe.report.apart import SLOW, SLOW_S, ending
from sglang_probe.report.fold import TOLERANCE
from sglang_probe.report.outcome import process_name
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Process, Run, Step
from sglang_probe.timeline.processes import is_cpu, ranks_of

MEASURES: Final = ("cost", "seconds", "free")
MOST_ROWS: Final = 48
"""Ranks that each get a row; of more, those that stand out do, and the others are put together."""
MOST_OUTLIERS: Final = 32
MOST_BINS: Final = 16

STATES: Final = ("error", "died", "interrupted", "open")
"""Of a cell's steps the first of these that any has is the cell's."""
NOT_RECORDED: Final = "nothing recorded says so"
LONGEST_REASON: Final = 120
_ON_DEVICE: Final = re.compile(r" on device \d+")

Cell = int | float | None


class Row(NamedTuple):
    """One row of the heat map: a rank, or several that are alike."""

    name: str
    ranks: tuple[int, ...]
    """Their places among the run's ranks; the first is picked where the row is clicked."""
    cells: dict[str, list[Cell]]
    """Measure -> a figure for each phase: the rank's, or the median of several."""
    least: dict[str, list[Cell]]
    most: dict[str, list[Cell]]
    states: tuple[str | None, ...]
    """How each phase stands that did not end well; of several ranks the worst."""
    stands_out: bool


class Table(NamedTuple):
    """The figures of all ranks in one measure, and what is usual among them."""

    rows: list[list[Cell]]
    median: list[Cell]
    alike: list[Cell]
    """By how much a figure of each phase may be off the median; None where it says nothing about a rank."""


def heat_data(run: Run) -> dict[str, Any]:
    """Return the heat map of a run: bytes and seconds, the median of all ranks, and which ranks stand out.

    Of the `outliers` those of `ended` did not end as most did; `slow` are the ranks that differ in seconds alone. `why`
    says of each measure why figures are missing, `off` how far bytes may be off.
    """
    ranks = ranks_of(run)
    phases = list(dict.fromkeys(phase_of(step) for process in ranks for step in process.steps))
    on_host = any(map(is_cpu, ranks))
    tables = {measure: _table(ranks, phases, measure, on_host=on_host) for measure in MEASURES}
    odd = {measure: _outliers([table]) for measure, table in tables.items()}
    ended = _ended_otherwise(run, ranks)
    off = _outliers([tables["cost"], tables["free"]]) if len(ranks) > 2 else []  # of two neither is usual
    out = [*ended, *(place for place in off if place not in ended)]
    slow = [place for place in odd["seconds"] if place not in out]
    states = [_states(process, phases) for process in ranks]
    return {
        "phases": phases,
        "median": {measure: table.median for measure, table in tables.items()},
        "alike": {measure: table.alike for measure, table in tables.items()},
        "outliers": out,
        "ended": ended,
        "slow": slow if len(ranks) > 2 else [],
        "odd": {measure: len(found) for measure, found in odd.items()},
        "rows": [row._asdict() for row in _rows(ranks, tables, states, out, slow)],
        "off": max((step.precision_bytes or 0 for process in ranks for step in process.steps), default=0),
        "folded": len(ranks) > MOST_ROWS,
        "host": on_host,
        "why": {measure: list(_why_none(ranks, phases, table.rows)) for measure, table in tables.items()},
    }


def _table(ranks: Sequence[Process], phases: Sequence[str], measure: str, *, on_host: bool) -> Table:
    rows = [_cells(process, phases, measure) for process in ranks]
    middle = [_median(column) for column in zip(*rows, strict=True)]
    # The median of two lies between them: they are apart by twice as much as each is off it.
    share = 2 if len(ranks) == 2 else 1
    return Table(rows, middle, [_alike(measure, usual, share, on_host=on_host) for usual in middle])


def _alike(measure: str, usual: Cell, share: int, *, on_host: bool) -> Cell:
    """Return what the terminal's report takes for alike. What is free on a host depends on when it was read."""
    if usual is None or (on_host and measure != "seconds"):
        return None
    return max(SLOW_S, (SLOW - 1) * usual) / share if measure == "seconds" else TOLERANCE // share


def _states(process: Process, phases: Sequence[str]) -> list[str | None]:
    found: dict[str, set[str]] = {}
    for step in process.steps:
        found.setdefault(phase_of(step), set()).add(step.state)
    return [next((state for state in STATES if state in found.get(phase, ())), None) for phase in phases]


def _ended_otherwise(run: Run, ranks: Sequence[Process]) -> list[int]:
    """Return the ranks that did not end as most did; where no ending is that of most, the one that failed first."""
    endings = [ending(process) for process in ranks]
    (usual, many), *_ = Counter(endings).most_common(1) or [(None, 0)]
    if 2 * many > len(endings):
        return [place for place, one in enumerate(endings) if one != usual]
    return [place for place, process in enumerate(ranks) if process.label == run.failed_label]


def _why_none(
    ranks: Sequence[Process], phases: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> Iterator[str]:
    """Say once for each reason in which phases a figure is missing; what has no end says so itself."""
    by_reason: dict[str, dict[str, None]] = {}
    for process, row in zip(ranks, rows, strict=True):
        steps = {phase_of(step): step for step in process.steps}
        for phase, cell in zip(phases, row, strict=True):
            step = steps.get(phase)
            if cell is None and (step is None or step.state in {"ok", "error"}):
                by_reason.setdefault(_reason(step), {})[phase] = None
    for reason, names in by_reason.items():
        yield f"{', '.join(names)}: {reason}"


def _reason(step: Step | None) -> str:
    if step is None:
        return "a rank recorded no such step"
    first = next(iter((step.null_reason or NOT_RECORDED).splitlines()), NOT_RECORDED)
    reason = printable(_ON_DEVICE.sub("", first))
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."


def phase_of(step: Step) -> str:
    """Return what a step counts to: its role, apart for a draft."""
    return f"{step.phase}, draft" if step.worker == "draft" else step.phase


def _cells(process: Process, phases: Sequence[str], measure: str) -> list[Cell]:
    by_phase: dict[str, list[Step]] = {}
    for step in process.steps:
        by_phase.setdefault(phase_of(step), []).append(step)
    phase_by_id = {step.id: phase_of(step) for step in process.steps}
    return [_cell(by_phase.get(phase, []), phase_by_id, measure) for phase in phases]


def _cell(steps: Sequence[Step], phase_by_id: dict[str, str], measure: str) -> Cell:
    """Return a figure of the steps of one phase. A cost is without that of steps inside: only it may be added."""
    if measure == "cost":
        known = [-step.self_delta_bytes for step in steps if step.self_delta_bytes is not None]
        return sum(known) if known else None
    outer = [step for step in steps if phase_by_id.get(step.parent or "") != phase_of(step)]
    if measure == "seconds":
        lasted = [step.duration_s for step in outer if step.duration_s is not None and math.isfinite(step.duration_s)]
        return round(sum(lasted), 6) if lasted else None
    return next((step.free_bytes for step in reversed(outer) if step.free_bytes is not None), None)


def _median(column: Sequence[Cell]) -> Cell:
    known = [cell for cell in column if cell is not None]
    if not known:
        return None
    middle = median(known)
    return round(middle, 6) if any(isinstance(cell, float) for cell in known) else int(middle)


def _outliers(tables: Sequence[Table]) -> list[int]:
    """Return the ranks whose figures are off, the farthest from the median first."""
    far: dict[int, float] = {}
    for table in tables:
        for place, row in enumerate(table.rows):
            for cell, usual, alike in zip(row, table.median, table.alike, strict=True):
                if cell is not None and usual is not None and alike and abs(cell - usual) > alike:
                    far[place] = max(far.get(place, 0.0), abs(cell - usual) / alike)
    return sorted(far, key=lambda place: (-far[place], place))


def _rows(
    ranks: Sequence[Process],
    tables: dict[str, Table],
    states: Sequence[Sequence[str | None]],
    out: Sequence[int],
    slow: Sequence[int],
) -> Iterator[Row]:
    told = set(out)
    if len(ranks) <= MOST_ROWS:
        yield from (_row(ranks, tables, states, (place,), place in told) for place in range(len(ranks)))
        return
    own = [*out, *slow][:MOST_OUTLIERS]
    yield from (_row(ranks, tables, states, (place,), place in told) for place in sorted(own))
    others = sorted(set(range(len(ranks))) - set(own))
    size = math.ceil(len(others) / MOST_BINS)
    yield from (
        _row(ranks, tables, states, tuple(others[begin : begin + size]), False)
        for begin in range(0, len(others), size)
    )


def _row(
    ranks: Sequence[Process],
    tables: dict[str, Table],
    states: Sequence[Sequence[str | None]],
    places: tuple[int, ...],
    out: bool,
) -> Row:
    columns = {
        measure: list(zip(*(table.rows[place] for place in places), strict=True)) for measure, table in tables.items()
    }
    first, last = process_name(ranks[places[0]]), process_name(ranks[places[-1]])
    worst = zip(*(states[place] for place in places), strict=True)
    return Row(
        first if len(places) == 1 else f"{first} to {last} ({len(places)})",
        places,
        {measure: [_median(column) for column in found] for measure, found in columns.items()},
        {measure: [_extreme(min, column) for column in found] for measure, found in columns.items()},
        {measure: [_extreme(max, column) for column in found] for measure, found in columns.items()},
        tuple(next((state for state in STATES if state in column), None) for column in worst),
        out,
    )


def _extreme(pick: Any, column: Sequence[Cell]) -> Cell:
    known = [cell for cell in column if cell is not None]
    return pick(known) if known else None
