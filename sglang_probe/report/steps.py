"""The table of a process's steps: what ran, for how long, and what it took from the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from rich.table import Table
from rich.text import Text

from sglang_probe.figures import gib, seconds
from sglang_probe.report.layout import folded
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Process, Step

HEADINGS: Final = ("phase (memory in GiB)", "state  secs", "free\nbefore", "free\nafter", "cost")
LAYOUTS: Final = ((2, 2), (1, 2), (1, 1))
"""(blanks between columns, blanks per level of nesting): the first with which the fewest phases are broken in two."""
LEAST_PHASE: Final = 24
"""Columns that the phase gets at least, however wide the figures are."""
WORTH_A_ROW: Final = 16 << 20
"""Bytes that a root cost outside its steps and that are worth a row."""
STYLES: Final = {"error": "bold red", "died": "bold red", "interrupted": "yellow", "open": "yellow"}


class Layout(NamedTuple):
    """What the tables of one report have in common, so that they stand below each other."""

    gap: int
    indent: int
    widths: tuple[int, ...]
    """Columns of each of the figures, without the gaps."""


def layout_of(processes: Iterable[Process], width: int) -> Layout:
    """Return the first layout with which the fewest phases of all these processes are broken in two."""
    tables = [list(_rows(process)) for process in processes]
    figures = [row.figures for rows in tables for row in rows]
    headings = [max(heading.split("\n"), key=len) for heading in HEADINGS[1:]]
    widths = tuple(max(map(len, column)) for column in zip(headings, *figures, strict=True))
    layouts = [Layout(gap, indent, widths) for gap, indent in LAYOUTS]
    return min(layouts, key=lambda one: sum(_phases(rows, one, width).breaks for rows in tables))


def steps_table(process: Process, width: int, layout: Layout | None = None) -> Table:
    """Return the table of one process; `layout` is that of the whole report."""
    layout = layout or layout_of([process], width)
    rows = list(_rows(process))
    table = Table(box=None, pad_edge=False, padding=(0, layout.gap, 0, 0), header_style="")
    for heading, least in zip(HEADINGS, (None, *layout.widths), strict=True):
        justify: Literal["left", "right"] = "left" if heading in HEADINGS[:2] else "right"
        table.add_column(Text(heading), justify=justify, no_wrap=True, vertical="bottom", min_width=least)
    for row, phase in zip(rows, _phases(rows, layout, width).names, strict=True):
        state, *numbers = (Text(figure) for figure in row.figures)
        state.stylize(STYLES.get(row.state, ""), 0, len(row.state))
        table.add_row(Text(phase), state, *numbers)
    return table


class _Row(NamedTuple):
    name: str
    depth: int
    state: str
    figures: tuple[str, ...]


def _rows(process: Process) -> Iterator[_Row]:
    """Return the steps; below those of a root what it cost outside of them, where that is much."""
    remainder: _Row | None = None
    for position, step in enumerate(process.steps):
        if step.depth == 0:
            if remainder is not None:
                yield remainder
            has_steps = position + 1 < len(process.steps) and process.steps[position + 1].depth > 0
            remainder = _remainder(step) if has_steps else None
        yield _Row(step_name(step), step.depth, step.state, _figures(step))
    if remainder is not None:
        yield remainder


def _remainder(root: Step) -> _Row | None:
    if root.self_delta_bytes is None or abs(root.self_delta_bytes) < WORTH_A_ROW:
        return None
    name = "(between its steps, and in those of unknown cost)" if root.self_includes else "(between its steps)"
    return _Row(name, 1, "", ("", "", "", gib(-root.self_delta_bytes)))


def step_name(step: Step) -> str:
    """Return the phase and what it was for, as in `kv.pool MHA, draft 1`."""
    name = printable(f"{step.phase} {step.detail}" if step.detail else step.phase)
    if step.worker != "draft":
        return name
    return f"{name}, draft" if step.draft_index is None else f"{name}, draft {step.draft_index}"


def _figures(step: Step) -> tuple[str, ...]:
    return (
        _state(step),
        gib(step.free_before_bytes, step.precision_bytes),
        gib(step.free_bytes, step.precision_bytes),
        gib(step.cost_bytes, step.precision_bytes),
    )


def _state(step: Step) -> str:
    """Return state and seconds in one column: what was interrupted has no seconds, and its name takes their place."""
    if step.duration_s is None and len(step.state) > len("error"):
        return step.state
    return f"{step.state:<5} {seconds(step.duration_s):>5}"


class _Names(NamedTuple):
    names: list[str]
    breaks: int


def _phases(rows: Sequence[_Row], layout: Layout, width: int) -> _Names:
    """Return the names indented by their nesting, broken where they are too long for their column."""
    room = max(width - sum(layout.gap + figure for figure in layout.widths), LEAST_PHASE)
    names = []
    for row in rows:
        own = " " * min(layout.indent * row.depth, room // 2)
        names.append("\n".join(folded(row.name, room, own, own + "    ", break_words=True)))
    return _Names(names, sum(name.count("\n") for name in names))
