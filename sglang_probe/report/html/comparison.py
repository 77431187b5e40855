"""A comparison of runs as the page shows it: what differs first, then each run in full, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from sglang_probe.explain.diff.causes import part_name
from sglang_probe.explain.diff.model import GROUPS, Arithmetic, Diff
from sglang_probe.explain.engine import as_printed
from sglang_probe.explain.model import Explanation
from sglang_probe.explain.titles import title_of
from sglang_probe.figures import UNKNOWN
from sglang_probe.report.diff import TITLES as GROUP_TITLES
from sglang_probe.report.diff import aside_lines, called, diff_text, nothing_differs, numbers_of, read_lines
from sglang_probe.report.diff_budget import budget_lines
from sglang_probe.report.diff_fold import kinds_of
from sglang_probe.report.diff_made import made_rows
from sglang_probe.report.diff_ranks import not_reached_lines, rank_rows, told_kinds, who_changes
from sglang_probe.report.explain import SEVERITY_WORDS, lever_words
from sglang_probe.report.html.data import document, run_data
from sglang_probe.report.html.facts import ENDLESS, plain_lines, read_data
from sglang_probe.report.html.fallback import cut
from sglang_probe.report.html.page import page_html
from sglang_probe.report.html.waterfall import Bar
from sglang_probe.report.outcome import process_name
from sglang_probe.report.pick import pick
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Timeline
from sglang_probe.timeline.processes import ranks_of

LEVEL: Final = "  "


def write_comparison(
    found: Diff, timelines: Sequence[Timeline], explanations: Sequence[Explanation], path: Path
) -> None:
    """Write one HTML file about a comparison; each timeline holds the one run of a side."""
    names = [side.name for side in found.sides]
    title = f"{' -> '.join(map(called, found.sides))} - SGLang Probe"
    with as_printed([timeline.runs[0] for timeline in timelines]):
        text = cut(diff_text(found) + read_lines(timelines, names, 80))
        data = comparison_data(found, timelines, explanations)
    path.write_text(page_html(data, title, text), encoding="utf-8")


def comparison_data(
    found: Diff, timelines: Sequence[Timeline], explanations: Sequence[Explanation]
) -> dict[str, Any]:
    """Return the document of a page about a comparison: `runs` are the sides in their order."""
    runs = [
        {"side": side.name, **run_data(timeline.runs[0], explanation.runs[0], (), None)}
        for side, timeline, explanation in zip(found.sides, timelines, explanations, strict=True)
    ]
    named = zip(found.sides, timelines, strict=True)
    read = [f"{side.name}: {line}" for side, timeline in named for line in read_data(timeline.read)]
    diff = {**diff_data(found), **first_rank(found, timelines, explanations), "do": list(_do(found, explanations))}
    return document(runs, read, diff)


def first_rank(
    found: Diff, timelines: Sequence[Timeline], explanations: Sequence[Explanation]
) -> dict[str, Any]:
    """Return every rank of any side with the sides that lack it, and the one to show first: one that all sides have,
    best the one that the last side's own page shows, else that of another side."""
    labels = [[process_name(rank) for rank in ranks_of(timeline.runs[0])] for timeline in timelines]
    ranks = {
        label: [side.name for side, own in zip(found.sides, labels, strict=True) if label not in own]
        for label in dict.fromkeys(label for own in labels for label in own)
    }
    both = zip(timelines, explanations, strict=True)
    picks = [pick(timeline.runs[0], explanation.runs[0].findings) for timeline, explanation in both]
    wanted: dict[str, str | None] = {}
    for side, one in reversed(list(zip(found.sides, picks, strict=True))):
        if one is not None:
            why = None if one.why is None else f"{one.why}, {side.name}"
            wanted.setdefault(process_name(one.process), why)
    first = min((*wanted, *ranks), key=lambda label: len(ranks[label]), default=None)
    places = list(ranks)
    return {
        "ranks": [{"label": label, "lacks": lacks} for label, lacks in ranks.items()],
        "picked": None if first is None else places.index(first),
        "picked_why": None if first is None else wanted.get(first),
    }


def _do(found: Diff, explanations: Sequence[Explanation]) -> Iterator[dict[str, str]]:
    """Yield what each side but the baseline leads with, where it is wrong, and what to do about it first."""
    for side, explanation in list(zip(found.sides, explanations, strict=True))[1:]:
        for finding in explanation.runs[0].findings[:1]:
            if finding.severity != "info" and finding.lever is not None:
                what = f"{SEVERITY_WORDS[finding.severity]} {title_of(finding)}"
                yield {"about": f"{side.name}: {what}", "do": f"do: {lever_words(finding.lever)}"}


def diff_data(found: Diff) -> dict[str, Any]:
    """Return what the sides differ in, as sentences and rows of cells."""
    return {
        "title": " → ".join(called(side) for side in found.sides),
        "says": list(found.says),
        "causes": [f"{cause.side}: {cause.says}" for cause in found.causes] if len(found.sides) > 2 else [],
        "sides": [side.name for side in found.sides],
        "numbers": _numbers(found),
        "made": list(_made(found)),
        "nothing_made": nothing_differs(found),
        "aside": _texts(aside_lines(found.provenance, ENDLESS))[1:],
        "changes": len(found.sides) == 2,
        "kinds": _kinds(found),
        "arithmetic": None if found.arithmetic is None else _arithmetic(found, found.arithmetic),
        "notes": list(found.notes),
    }


def _texts(lines: Sequence[Text]) -> list[str]:
    return [line.plain.strip() for line in lines]


def _numbers(found: Diff) -> list[list[str]]:
    columns = [list(numbers_of(side)) for side in found.sides]
    rows = [[cells[0][0], *(cell for _, cell in cells)] for cells in zip(*columns, strict=True)]
    return [row for row in rows if set(row[1:]) != {UNKNOWN}]


def _made(found: Diff) -> Iterator[dict[str, Any]]:
    for group in GROUPS:
        rows = [row for row in found.provenance if row.group == group and row.differs and row.counts]
        if rows:
            lines = [line for row in rows for line in made_rows(row)]
            yield {"title": GROUP_TITLES[group], "rows": [[line.name, *line.cells] for line in lines]}


def _kinds(found: Diff) -> list[dict[str, Any]]:
    """Return the ranks that change alike, with the rows in which the sides differ."""
    tightest = {side.tightest for side in found.sides}
    kinds, _ = kinds_of(found.ranks, tightest)
    names = [side.name for side in found.sides]
    return [
        {
            "who": who_changes(kind),
            "rows": [[line.name.strip(), *line.cells, _depth(line.name)] for line in rank_rows(kind.rank)],
            "not_reached": _texts(not_reached_lines(kind.rank, names, ENDLESS)),
        }
        for kind in told_kinds(kinds, tightest)
    ]


def _depth(name: str) -> int:
    return len(name) - len(name.lstrip())


def _arithmetic(found: Diff, work: Arithmetic) -> dict[str, Any]:
    """Return what changed the rest, part by part: the bars that are no totals add up to the difference to the byte."""
    before, after = work.rest_bytes
    bars = [Bar(f"rest, {found.sides[0].name}", "absolute", before, "sum")]
    bars += [
        Bar(part_name(piece.part), "relative", piece.delta_bytes, "worse" if piece.delta_bytes < 0 else "better")
        for piece in work.pieces
        if piece.of is None
    ]
    missing = after - before - sum(bar.bytes for bar in bars[1:])
    bars += [Bar("rounding", "relative", missing, "other")] if missing else []
    bars.append(Bar(f"rest, {found.sides[1].name}", "total", after, "sum"))
    return {
        "name": printable(" and ".join(dict.fromkeys(work.labels))),
        "lines": plain_lines(budget_lines(found, 96), len(LEVEL)),
        "bars": [bar._asdict() for bar in bars],
        "off": {} if work.precision_bytes is None else {"rest_bytes": work.precision_bytes},
    }
