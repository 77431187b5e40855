"""The difference of two budgets, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from sglang_probe.explain.diff.causes import part_name
from sglang_probe.explain.diff.model import Arithmetic, Diff, Piece
from sglang_probe.explain.diff.printed import Printed, printed, with_sign
from sglang_probe.explain.diff.wording import gib_up
from sglang_probe.figures import UNKNOWN, fraction, gib, number
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.layout import Width, paragraph

INDENT: Final = "  "


def budget_lines(found: Diff, width: Width) -> list[Text]:
    """Return what the tightest rank's rest changed by: the parts that are not indented re-add to the whole."""
    work = found.arithmetic
    if work is None:
        return []
    heading = Line("", ("baseline", "candidate", "rest", *_tokens_heading(work)))
    before, after = work.rest_bytes
    figures, tokens = printed(work), _shown_tokens(work)
    rows = [_line(piece, work, figures, tokens) for piece in work.pieces if piece.part in tokens]
    if figures.rounding:
        rows.append(Line(part_name("rounding"), ("", "", with_sign(figures.rounding), *_tokens(work, 0))))
    changed = (with_sign(figures.whole), *_tokens(work, work.delta_tokens))
    rows.append(Line("the rest itself", (gib(before), gib(after), *changed)))
    who = work.labels[0] if work.labels[0] == work.labels[1] else f"{work.labels[0]} and {work.labels[1]}"
    lines = paragraph(f"What changed the budget of the tightest rank ({who}; GiB)", width, style="bold")
    lines += paragraph("rest = pre-load x fraction - weights - deductions; a part below pre-load is", width, INDENT)
    lines += paragraph("what it takes of the card, x the fraction", width, INDENT)
    lines += grid(heading, rows, width, INDENT)
    return lines + [text for note in _unknown(work) for text in paragraph(note, width, INDENT, INDENT * 2)]


def _shown_tokens(work: Arithmetic) -> dict[str, int | None]:
    """Return the parts that are printed, with their tokens: the greatest has those of the ones that are not."""
    figures = printed(work)
    told = {one.part: one.of for one in work.pieces if figures.parts[one.part] or abs(one.delta_tokens or 0) > 1}
    shown = [one for one in work.pieces if one.part in told or one.part in told.values()]
    tokens = {one.part: one.delta_tokens for one in shown}
    for level in {one.of for one in shown}:
        here = [one for one in shown if one.of == level]
        hidden = sum(one.delta_tokens or 0 for one in work.pieces if one.of == level and one.part not in tokens)
        greatest = max(here, key=lambda one: abs(one.delta_tokens or 0))
        if greatest.delta_tokens is not None:
            tokens[greatest.part] = greatest.delta_tokens + hidden
    return tokens


def _line(piece: Piece, work: Arithmetic, figures: Printed, tokens: dict[str, int | None]) -> Line:
    name = f"{part_name(piece.part)} (B)" if piece.part == "bytes_per_token" else part_name(piece.part)
    cells = tuple(_value(piece, value) for value in piece.values)
    name = f"{INDENT}{name}" if piece.of else name
    return Line(name, (*cells, figures.of(piece.part), *_tokens(work, tokens[piece.part])))


def _value(piece: Piece, value: float | int | None) -> str:
    if value is None:
        return UNKNOWN
    if piece.part == "fraction":
        return fraction(value)
    return number(int(value)) if piece.part == "bytes_per_token" else gib(int(value))


def _tokens_heading(work: Arithmetic) -> tuple[str, ...]:
    return ("tokens",) if work.delta_tokens is not None else ()


def _tokens(work: Arithmetic, count: int | None) -> tuple[str, ...]:
    if work.delta_tokens is None:
        return ()
    return (UNKNOWN if count is None else f"{count:+,}",)


def _unknown(work: Arithmetic) -> Iterator[str]:
    if work.precision_bytes is not None:
        yield f"read from a log: the rest's change is good to {gib_up(work.precision_bytes)} GiB"
    for piece in work.pieces:
        if piece.part == "other" and abs(piece.delta_bytes) <= (piece.precision_bytes or 0):
            yield f"other: no more than what two decimals leave open (+- {gib_up(piece.precision_bytes or 0)} GiB)"
        if piece.note is not None:
            yield f"{part_name(piece.part)}: {piece.note}"
