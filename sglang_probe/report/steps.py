"""The table of a process's steps: what ran, for how long, and what it took from the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from sglang_probe.figures import UNKNOWN, gib, seconds
from sglang_probe.report.layout import Width, folded, paragraph
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Process, Step

HEADINGS: Final = (("", "", "free", "free", ""), ("phase (memory in GiB)", "state  secs", "before", "after", "cost"))
LAYOUTS: Final = ((2, 2), (1, 2), (1, 1))
"""(blanks between columns, blanks per level of nesting): the first with which the fewest phases are broken in two."""
INDENT: Final = "  "
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

    @property
    def figures(self) -> int:
        """Return the columns of all figures, with their gaps."""
        return sum(self.gap + width for width in self.widths)


def layout_of(processes: Iterable[Process], width: int) -> Layout:
    """Return the first layout with which the fewest phases of all these processes are broken in two."""
    tables = [list(_rows(process)) for process in processes]
    figures = [row.figures for rows in tables for row in rows]
    headings = [max(heading, key=len) for heading in list(zip(*HEADINGS, strict=True))[1:]]
    widths = tuple(max(map(len, column)) for column in zip(headings, *figures, strict=True))
    layouts = [Layout(gap, indent, widths) for gap, indent in LAYOUTS]
    return min(layouts, key=lambda one: sum(_phases(rows, one, width).breaks for rows in tables))


def steps_table(process: Process, width: Width, layout: Layout | None = None) -> list[Text]:
    """Return the table of one process; `layout` is that of the whole report. Without a width, or on a page that is too
    narrow for the columns, a step is a sentence."""
    if width is None:
        return [text for said in _sentences(process) for text in paragraph(said, width)]
    layout = layout or layout_of([process], width)
    if width < LEAST_PHASE + layout.figures:
        return [text for said in _sentences(process) for text in paragraph(said, width, INDENT, INDENT * 2)]
    rows = list(_rows(process))
    names = _phases(rows, layout, width).names
    room = max(cell_len(line) for lines in (*names, [HEADINGS[1][0]]) for line in lines)
    table = [Text(_line(heading[0], heading[1:], room, layout)) for heading in HEADINGS]
    for row, (*above, last) in zip(rows, names, strict=True):
        line = Text(_line(last, row.figures, room, layout))
        begins = len(last) + room - cell_len(last) + layout.gap
        line.stylize(STYLES.get(row.state, ""), begins, begins + len(row.state))
        table += [*map(Text, above), line]
    return table


def _line(phase: str, figures: Sequence[str], room: int, layout: Layout) -> str:
    state, *numbers = figures
    gap = " " * layout.gap
    shown = [state.ljust(layout.widths[0])]
    shown += [number.rjust(width) for number, width in zip(numbers, layout.widths[1:], strict=True)]
    return f"{phase}{' ' * (room - cell_len(phase))}{gap}{gap.join(shown)}"


def _sentences(process: Process) -> Iterator[str]:
    """Yield a sentence a step: `weights.load, in scheduler.init: ok, 0.112 s; free 138.280 before, 134.030 after; cost
    4.250 GiB`."""
    outer: list[str] = []
    for row in _rows(process):
        del outer[row.depth :]
        inside = f", in {outer[-1]}" if outer else ""
        outer.append(row.name)
        before, after, cost = row.figures[1:]
        free = "" if before == after == UNKNOWN else f"; free {_known(before)} before, {_known(after)} after"
        took = f"; cost {_known(cost)}{'' if cost == UNKNOWN else ' GiB'}"
        if not row.state:
            yield f"{row.name}{inside}: cost {cost} GiB"
        else:
            duration = "" if row.duration == UNKNOWN else f", {row.duration} s"
            yield f"{row.name}{inside}: {row.state}{duration}{free}{took if free else '; memory unknown'}"


def _known(figure: str) -> str:
    return "unknown" if figure == UNKNOWN else figure


class _Row(NamedTuple):
    name: str
    depth: int
    state: str
    figures: tuple[str, ...]
    duration: str = UNKNOWN


def _rows(process: Process) -> Iterator[_Row]:
    """Return the steps; below those of a root what it cost outside of them, where that is much."""
    remainder: _Row | None = None
    for position, step in enumerate(process.steps):
        if step.depth == 0:
            if remainder is not None:
                yield remainder
            has_steps = position + 1 < len(process.steps) and process.steps[position + 1].depth > 0
            remainder = _remainder(step) if has_steps else None
        yield _Row(step_name(step), step.depth, step.state, _figures(step), seconds(step.duration_s))
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
    names: list[list[str]]
    """Row by row the lines of its name."""
    breaks: int


def _phases(rows: Sequence[_Row], layout: Layout, width: int) -> _Names:
    """Return the names indented by their nesting, broken where they are too long for their column."""
    room = max(width - layout.figures, LEAST_PHASE)
    names = []
    for row in rows:
        own = " " * min(layout.indent * row.depth, room // 2)
        names.append(folded(row.name, room, own, own + "    ", break_words=True) or [own])
    return _Names(names, sum(len(lines) - 1 for lines in names))
