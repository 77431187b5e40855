"""The comparison of runs as text: in one look, what they were made of, rank by rank, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from sglang_probe.explain.diff.figures import UNRECORDED
from sglang_probe.explain.diff.model import GROUPS, Diff, Row, Side
from sglang_probe.explain.diff.wording import shown, title
from sglang_probe.explain.feasible import at_least
from sglang_probe.figures import UNKNOWN, counted, fraction, gib, listed, number
from sglang_probe.report.diff_budget import budget_lines
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.diff_made import made_lines
from sglang_probe.report.diff_ranks import ranks_lines
from sglang_probe.report.layout import WIDTH, Width, field, page, paragraph
from sglang_probe.timeline.model import Timeline

INDENT: Final = "  "
TITLES: Final = {
    "run": "the run itself",
    "sglang": "SGLang",
    "functions": "SGLang's functions that the probe hooks",
    "arguments given": "server arguments, as given",
    "arguments effective": "server arguments, in effect alone",
    "variables": "variables",
    "versions": "versions",
    "cards": "cards and driver",
    "visible devices": "visible devices",
    "tenants": "others on the cards",
    "machine": "machine",
}
MANY: Final = 4
"""Of the differences that do not count, those of one reason that are named."""


def diff_text(found: Diff, width: Width = WIDTH, *, colour: bool = False) -> str:
    """Return a comparison for a person; with more than two sides as a matrix. The same comparison, the same text."""
    if not found.provenance and not found.ranks and not found.causes and len(found.says) == 1:
        return page([_head(found, width), _sides(found, width), _notes(found, width)], colour)
    parts = [
        _head(found, width),
        _sides(found, width),
        _provenance(found, width),
        ranks_lines(found, width),
        budget_lines(found, width),
        _sentences(found, width),
        _notes(found, width),
    ]
    return page([part for part in parts if part], colour)


def _head(found: Diff, width: Width) -> list[Text]:
    """Say what was compared, and what it comes to, first of all."""
    what = " -> ".join(called(side) for side in found.sides)
    lines = [*field("diff", what, width, "bold"), Text(), Text("In one look", style="bold")]
    leading = found.says[:1] if len(found.sides) == 2 else found.says
    for sentence in leading:
        lines += paragraph(sentence, width, INDENT, INDENT * 2, style="bold")
    return lines


def called(side: Side) -> str:
    """Return how the run of a side is called."""
    return f"{side.run_id}, launch {side.launch + 1}" if side.launch else side.run_id


def _sides(found: Diff, width: Width) -> list[Text]:
    """Return the main numbers, those that are known of any side."""
    heading = Line("", tuple(side.name for side in found.sides), "bold")
    columns = [tuple(numbers_of(side)) for side in found.sides]
    rows = [Line(cells[0][0], tuple(cell for _, cell in cells)) for cells in zip(*columns, strict=True)]
    return grid(heading, [row for row in rows if set(row.cells) != {UNKNOWN}], width)


def numbers_of(side: Side) -> Iterator[tuple[str, str]]:
    """Return the main numbers of a side, each with its name and unit."""
    told = side.precisions
    yield "run", called(side)
    yield "outcome", f"{side.outcome.upper()}{f' in {side.failed_phase}' if side.failed_phase else ''}"
    yield "ready after, s", UNKNOWN if side.ready_s is None else f"{side.ready_s:.1f}"
    yield "ranks seen", f"{side.ranks} of {side.ranks + side.missing_ranks}"
    yield "tightest rank", side.tightest or UNKNOWN
    yield "fraction", fraction(side.mem_fraction_static)
    yield "pre-load, GiB", gib(side.pre_load_bytes, told.get("pre_load_bytes"))
    yield "available, GiB", gib(side.available_bytes, told.get("available_bytes"))
    yield "rest, GiB", gib(side.rest_bytes, told.get("rest_bytes"))
    yield "minimum viable fraction", _minimum(side)
    yield "formula verified", UNKNOWN if side.verified is None else "yes" if side.verified else "no"
    yield "KV tokens", number(side.tokens)
    far = f" +- {told['bytes_per_token']}" if "bytes_per_token" in told else ""
    yield "bytes of a token", f"{number(side.bytes_per_token)}{far}"
    yield "free at the last reading, GiB", gib(side.free_bytes, told.get("free_bytes"))


def _minimum(side: Side) -> str:
    """Return the minimum viable fraction; of a budget that left nothing rounded up, as what it must be at least."""
    least = side.minimum_viable_fraction
    if least is None:
        return UNKNOWN
    return at_least(least) if side.rest_bytes is not None and side.rest_bytes <= 0 else f"{least:.4f}"


def nothing_differs(found: Diff) -> str:
    """Return what there is to say of what the sides were made of, where no row differs."""
    return f"unknown: {UNRECORDED}" if UNRECORDED in found.notes else "the same, in everything recorded of it"


def _provenance(found: Diff, width: Width) -> list[Text]:
    if not found.provenance:
        same = paragraph(nothing_differs(found), width, INDENT)
        return [Text("What they were made of", style="bold"), *same]
    lines = [Text("What they were made of", style="bold")]
    for group in GROUPS:
        rows = [row for row in found.provenance if row.group == group and row.differs and row.counts]
        if rows:
            lines += paragraph(TITLES[group], width, INDENT)
            lines += made_lines(rows, [side.name for side in found.sides], width)
    return lines + aside_lines(found.provenance, width) + _the_same(found.provenance, width)


def aside_lines(rows: Sequence[Row], width: Width) -> list[Text]:
    """Name what differs and does not count, by its reason."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.differs and not row.counts:
            by_reason.setdefault(row.why or "", []).append(title(row))
    if not by_reason:
        return []
    lines = paragraph("differs, and does not count", width, INDENT)
    for reason, names in by_reason.items():
        lines += paragraph(f"{reason}: {listed(names, MANY)}", width, INDENT * 2, INDENT * 4)
    return lines


def _the_same(rows: Sequence[Row], width: Width) -> list[Text]:
    """With `--all`: what is the same, or differs by nature."""
    alike = [row for row in rows if not row.differs]
    if not alike:
        return []
    lines = paragraph(f"the same, or different by nature: {counted(len(alike), 'fact')}", width, INDENT)
    for row in alike:
        value = shown(row, row.values[0])
        said = f"{title(row)}: {row.why}" if row.why else f"{title(row)} {value}"
        lines += paragraph(said, width, INDENT * 2, INDENT * 4)
    return lines


def _sentences(found: Diff, width: Width) -> list[Text]:
    """Return what is not said at the top: all sentences but the leading one; of a matrix the causes not named there."""
    said = list(found.says[1:]) if len(found.sides) == 2 else []
    for cause in found.causes if len(found.sides) > 2 else ():
        if not any(sentence.endswith(cause.says) for sentence in found.says):
            said.append(f"{cause.side}: {cause.says}")
    lines = [Text("What it comes to", style="bold")] if said else []
    for sentence in said:
        lines += paragraph(sentence, width, f"{INDENT}- ", INDENT * 2)
    return lines


def _notes(found: Diff, width: Width) -> list[Text]:
    notes = [note for note in found.notes if note != UNRECORDED or found.provenance]  # else it stands above
    return [text for note in notes for text in paragraph(note, width, INDENT, INDENT * 2)]


def read_lines(timelines: Sequence[Timeline], names: Sequence[str], width: Width) -> str:
    """Return what was lost as the sides were read; nothing where every line was a whole event."""
    losses = [
        f"{name}: {loss.count:,} x {loss.says}"
        for name, timeline in zip(names, timelines, strict=True)
        for loss in timeline.read.losses
    ]
    lines = [text for loss in losses for text in paragraph(loss, width, INDENT, INDENT * 2)]
    return page([[], [Text("Found while reading", style="bold"), *lines]], colour=False) if lines else ""
