"""The table of a process's steps: what ran, for how long, and what it took from the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from sglang_probe.report.layout import folded
from sglang_probe.report.plain import gib, printable, seconds
from sglang_probe.timeline.model import Process, Step

HEADINGS: Final = ("phase (memory in GiB)", "state  secs", "free\nbefore", "free\nafter", "cost")
LAYOUTS: Final = ((2, 2), (1, 2), (1, 1))
"""(blanks between columns, blanks per level of nesting): the first with which the fewest phases are broken in two."""
LEAST_PHASE: Final = 24
"""Columns that the phase gets at least, however wide the figures are."""
STYLES: Final = {"error": "bold red", "died": "bold red", "interrupted": "yellow", "open": "yellow"}


def steps_table(process: Process, width: int) -> Table:
    """Return the table of one process."""
    rows = [_figures(step) for step in process.steps]
    gap, phases = min(
        ((gap, _phases(process.steps, indent, width - _others(rows, gap))) for gap, indent in LAYOUTS),
        key=lambda layout: sum(phase.count("\n") for phase in layout[1]),
    )
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="")
    for position, heading in enumerate(HEADINGS):
        table.add_column(Text(heading), justify="left" if position < 2 else "right", no_wrap=True, vertical="bottom")
    for step, phase, figures in zip(process.steps, phases, rows, strict=True):
        state, *numbers = (Text(figure) for figure in figures)
        state.stylize(STYLES.get(step.state, ""), 0, len(step.state))
        table.add_row(Text(phase), state, *numbers)
    return table


def step_name(step: Step) -> str:
    """Return the phase and what it was for, as in `kv.pool MHA, draft 1`."""
    name = printable(f"{step.phase} {step.detail}" if step.detail else step.phase)
    if step.worker != "draft":
        return name
    return f"{name}, draft" if step.draft_index is None else f"{name}, draft {step.draft_index}"


def _figures(step: Step) -> tuple[str, ...]:
    return (
        _state(step),
        gib(step.free_before_bytes),
        gib(step.free_bytes),
        gib(step.cost_bytes),
    )


def _state(step: Step) -> str:
    """Return state and seconds in one column: what was interrupted has no seconds, and its name takes their place."""
    if step.duration_s is None and len(step.state) > len("error"):
        return step.state
    return f"{step.state:<5} {seconds(step.duration_s):>5}"


def _others(rows: Sequence[Sequence[str]], gap: int) -> int:
    """Columns that everything but the phase takes."""
    headings = [max(heading.split("\n"), key=len) for heading in HEADINGS[1:]]
    return sum(gap + max(map(len, column)) for column in zip(headings, *rows, strict=True))


def _phases(steps: Sequence[Step], indent: int, width: int) -> list[str]:
    """Return the names indented by their nesting, broken where they are too long for their column."""
    room = max(width, LEAST_PHASE)
    phases = []
    for step in steps:
        own = " " * min(indent * step.depth, room // 2)
        phases.append("\n".join(folded(step_name(step), room, own, own + "    ", break_words=True)))
    return phases
