"""The timeline as text for a person: a head, a block per rank, a foot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType

from sglang_probe.report.footer import read_footer, run_footer
from sglang_probe.report.header import run_header
from sglang_probe.report.layout import WIDTH, page
from sglang_probe.report.rank import rank_block
from sglang_probe.report.steps import layout_of
from sglang_probe.timeline.model import Process, Run, Timeline


def timeline_text(
    timeline: Timeline,
    where: Sequence[Sequence[str]] = (),
    width: int = WIDTH,
    *,
    colour: bool = False,
    now: datetime | None = None,
) -> str:
    """Return the whole timeline; `where` names, run by run, where its files are; `now` (UTC, with its zone) is the time
    that a start which is still running is silent until.

    Deterministic: the same timeline gives the same text, and without `colour` no escape sequence is in it,
    whatever the events carried.
    """
    parts: list[Sequence[RenderableType]] = []
    launches = Counter(run.run_id for run in timeline.runs)
    for position, run in enumerate(timeline.runs):
        several = run.launch > 0 or launches[run.run_id] > 1
        places = where[position] if position < len(where) else ()
        parts += [run_header(run, places, width, now, several_launches=several), *_blocks(run, width)]
        foot = run_footer(run, width)
        parts += [foot] if foot else []
    parts.append(read_footer(timeline.read, width))
    return page(parts, colour)


def _blocks(run: Run, width: int) -> list[list[RenderableType]]:
    shown = [process for process in run.processes if _has_block(process)]
    layout = layout_of(shown, width)
    return [rank_block(process, width, layout) for process in shown]


def _has_block(process: Process) -> bool:
    """A launcher or a detokenizer has no memory steps and needs no block."""
    return process.label is not None or bool(process.steps)
