"""Ranks beside phases: what each phase took, how long it lasted, what was free after it; many ranks folded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median_low
from typing import Any, Final, NamedTuple

from sglang_probe.report.apart import SLOW, SLOW_S
from sglang_probe.report.fold import TOLERANCE
from sglang_probe.report.outcome import process_name
from sglang_probe.timeline.model import Process, Run, Step
from sglang_probe.timeline.processes import ranks_of

MEASURES: Final = ("cost", "seconds", "free")
MOST_ROWS: Final = 48
"""Ranks that each get a row; of more, those that stand out do, and the others are put together."""
MOST_OUTLIERS: Final = 32
MOST_BINS: Final = 16

Cell = int | float | None


class Row(NamedTuple):
    """One row of the heat map: a rank, or several that are alike."""

    name: str
    ranks: tuple[int, ...]
    """Their places among the run's ranks; the first is picked where the row is clicked."""
    cells: dict[str, list[Cell]]
    """Measure -> a figure for each phase: the rank's, or the (low) median of several."""
    least: dict[str, list[Cell]]
    most: dict[str, list[Cell]]
    stands_out: bool


def heat_data(run: Run) -> dict[str, Any]:
    """Return the heat map of a run: bytes and seconds, the median of all ranks, and which ranks stand out."""
    ranks = ranks_of(run)
    phases = list(dict.fromkeys(phase_of(step) for process in ranks for step in process.steps))
    tables = {measure: [_cells(process, phases, measure) for process in ranks] for measure in MEASURES}
    middle = {measure: [_median(column) for column in zip(*rows, strict=True)] for measure, rows in tables.items()}
    out = _outliers(tables, middle)
    return {
        "phases": phases,
        "median": middle,
        "outliers": out,
        "odd": {measure: len(_outliers({measure: rows}, middle)) for measure, rows in tables.items()},
        "rows": [row._asdict() for row in _rows(ranks, tables, out)],
        "folded": len(ranks) > MOST_ROWS,
    }


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
    return median_low(known) if known else None


def _outliers(tables: dict[str, list[list[Cell]]], middle: dict[str, list[Cell]]) -> list[int]:
    """Return the ranks that stand out, the farthest from the median first."""
    far: dict[int, float] = {}
    for measure, rows in tables.items():
        for place, row in enumerate(rows):
            for cell, usual in zip(row, middle[measure], strict=True):
                apart = _apart(measure, cell, usual)
                if apart > 1:
                    far[place] = max(far.get(place, 0.0), apart)
    return sorted(far, key=lambda place: (-far[place], place))


def _apart(measure: str, cell: Cell, usual: Cell) -> float:
    """Return how far a figure is from the usual one, in units of what the terminal's report takes for alike."""
    if cell is None or usual is None:
        return 0.0
    alike = max(SLOW_S, (SLOW - 1) * usual) if measure == "seconds" else float(TOLERANCE)
    return abs(cell - usual) / alike


def _rows(ranks: Sequence[Process], tables: dict[str, list[list[Cell]]], out: Sequence[int]) -> Iterator[Row]:
    if len(ranks) <= MOST_ROWS:
        told = set(out)
        yield from (_row(ranks, tables, (place,), place in told) for place in range(len(ranks)))
        return
    own = list(out[:MOST_OUTLIERS])
    yield from (_row(ranks, tables, (place,), True) for place in sorted(own))
    others = sorted(set(range(len(ranks))) - set(own))
    size = math.ceil(len(others) / MOST_BINS)
    yield from (
        _row(ranks, tables, tuple(others[begin : begin + size]), False) for begin in range(0, len(others), size)
    )


def _row(ranks: Sequence[Process], tables: dict[str, list[list[Cell]]], places: tuple[int, ...], out: bool) -> Row:
    columns = {measure: list(zip(*(rows[place] for place in places), strict=True)) for measure, rows in tables.items()}
    first, last = process_name(ranks[places[0]]), process_name(ranks[places[-1]])
    return Row(
        first if len(places) == 1 else f"{first} to {last} ({len(places)})",
        places,
        {measure: [_median(column) for column in found] for measure, found in columns.items()},
        {measure: [_extreme(min, column) for column in found] for measure, found in columns.items()},
        {measure: [_extreme(max, column) for column in found] for measure, found in columns.items()},
        out,
    )


def _extreme(pick: Any, column: Sequence[Cell]) -> Cell:
    known = [cell for cell in column if cell is not None]
    return pick(known) if known else None
