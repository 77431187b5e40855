"""The timeline as text for a person: a head, all ranks at a glance, a block for those that agree, a foot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from sglang_probe.figures import counted
from sglang_probe.report.apart import Middle, middle_of
from sglang_probe.report.apart_facts import facts_apart
from sglang_probe.report.facts import tenants_of
from sglang_probe.report.fold import Fold, alone, card_mates, folds_of, is_unfinished, off_by
from sglang_probe.report.footer import read_footer, run_footer
from sglang_probe.report.header import run_header
from sglang_probe.report.layout import WIDTH, Width, page, paragraph
from sglang_probe.report.overview import apart_line, least_free, overview
from sglang_probe.report.rank import rank_block
from sglang_probe.report.steps import layout_of
from sglang_probe.timeline.label_ranges import MANY, named
from sglang_probe.timeline.model import Run, Timeline
from sglang_probe.timeline.processes import is_called, ranks_of

MOST_BLOCKS: Final = 8
"""Groups of ranks that have a block and a row; what is not among them is named, and `everything` has it."""


def timeline_text(
    timeline: Timeline,
    where: Sequence[Sequence[str]] = (),
    width: Width = WIDTH,
    *,
    colour: bool = False,
    now: datetime | None = None,
    bars: bool = False,
    everything: bool = False,
    only: Sequence[str] = (),
) -> str:
    """Return the whole timeline; `where` names, run by run, where its files are; `now` (UTC, with its zone) is the time
    that a start which is still running is silent until.

    Ranks that agree are told once; with `everything` each for itself, with `only` those of these labels. `bars` are for
    a terminal; without a `width` it is for a screen reader: a line is a sentence.
    Deterministic: the same timeline gives the same text, and without `colour` no escape sequence is in it,
    whatever the events carried.
    """
    parts: list[Sequence[Text]] = []
    launches = Counter(run.run_id for run in timeline.runs)
    for position, run in enumerate(timeline.runs):
        several = run.launch > 0 or launches[run.run_id] > 1
        places = where[position] if position < len(where) else ()
        parts.append(run_header(run, places, width, now, several_launches=several))
        parts += _blocks(run, width, bars, everything, frozenset(only))
        foot = run_footer(run, width)
        parts += [foot] if foot else []
    parts.append(read_footer(timeline.read, width))
    return page(parts, colour)


def _blocks(run: Run, width: Width, bars: bool, everything: bool, only: frozenset[str]) -> list[list[Text]]:
    """Return the ranks at a glance, then the blocks: first the ranks', then those of other processes with steps."""
    folds = folds_of(run, ranks_of(run))
    middle = middle_of(folds)
    shown, rest = _told(folds, run, middle)
    parts = [] if only or len(ranks_of(run)) < 2 else [overview(shown, rest, middle, width, bars=bars)]
    if everything or only:
        shown, rest = _each(run, folds, only), []
    others = [] if only else [alone(process) for process in run.processes if process.label is None and process.steps]
    layout = None if width is None else layout_of([fold.shown for fold in (*shown, *others)], width)
    for fold in shown:
        apart = None if middle is None or middle.has(fold.processes[0]) else apart_line(fold, middle)
        parts.append(rank_block(fold, width, layout, apart=apart, bars=bars))
    parts += [rank_block(fold, width, layout) for fold in others]
    return [*parts, *([_not_shown(rest, width)] if rest else [])]


def _each(run: Run, folds: Sequence[Fold], only: frozenset[str]) -> list[Fold]:
    """Return ranks as groups of their own, in their order."""
    tightest = next((fold.tightest for fold in folds if fold.tightest is not None), None)
    mates = card_mates(ranks_of(run))
    chosen = (one for one in ranks_of(run) if not only or any(is_called(one, name) for name in only))
    return [alone(process, tightest, mates.get(id(process), ())) for process in chosen]


def _not_shown(rest: Sequence[Fold], width: Width) -> list[Text]:
    """Name the ranks that have no block; of those that did not end well each."""
    lines = []
    for what, folds in (
        ("did not come to the end of a step", [fold for fold in rest if is_unfinished(fold)]),
        ("differ from all of these", [fold for fold in rest if not is_unfinished(fold)]),
    ):
        labels = [label for fold in folds for label in fold.labels]
        names = named(labels, None if what.startswith("did") else MANY)
        said = f"{counted(len(labels), 'more rank')}, {names}: {what}; --all prints every rank, --rank LABEL one"
        lines += paragraph(said, width) if labels else []
    return lines


def _told(folds: Sequence[Fold], run: Run, middle: Middle | None) -> tuple[list[Fold], list[Fold]]:
    """Return the groups that are told, in their order, and the others.

    Told are those that failed, the tightest, the one that the others are compared with, those that did not come to an
    end, and then the one with the least free, those of another kind, and those that are farthest off.
    """
    if middle is None or len(folds) <= MOST_BLOCKS:
        return list(folds), []
    norm = middle.fold
    least = min(folds, key=least_free)

    def weight(fold: Fold) -> tuple[bool | int, ...]:
        off = off_by(fold, norm)
        first = run.failed_label not in fold.labels, fold.tightest is None, fold is not norm, not is_unfinished(fold)
        other_kind = off is None or bool(facts_apart(fold, norm, zip(fold.shown.steps, norm.shown.steps, strict=True)))
        matters = fold is not least, not tenants_of(fold.shown), not other_kind, -(off or 0)
        return *first, *matters, -len(fold.processes)

    chosen = {id(fold) for fold in sorted(folds, key=weight)[:MOST_BLOCKS]}
    return [fold for fold in folds if id(fold) in chosen], [fold for fold in folds if id(fold) not in chosen]
