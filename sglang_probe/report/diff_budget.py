"""The difference of two budgets, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from sglang_probe.explain.diff.causes import part_name
from sglang_probe.explain.diff.model import Arithmetic, Diff, Piece
from sglang_probe.explain.diff.wording import signed_gib
from sglang_probe.figures import UNKNOWN, fraction, gib, number
from sglang_probe.report.diff_grid import Line, grid
from sglang_probe.report.layout import paragraph

INDENT: Final = "  "
SHOWN: Final = 1 << 19
"""Bytes from which a part is not 0.000."""


def budget_lines(found: Diff, width: int) -> list[Text]:
    """Return what the tightest rank's rest changed by: the parts that are not indented re-add to the whole."""
    work = found.arithmetic
    if work is None:
        return []
    heading = Line("", ("baseline", "candidate", "rest", *_tokens_heading(work)))
    before, after = work.rest_bytes
    rows = [_line(piece, work) for piece in work.pieces if _is_shown(piece)]
    changed = (_signed(work.delta_bytes), *_tokens(work, work.delta_tokens))
    rows.append(Line("the rest itself", (gib(before), gib(after), *changed)))
    who = work.labels[0] if work.labels[0] == work.labels[1] else f"{work.labels[0]} and {work.labels[1]}"
    lines = [Text(f"What changed the budget of the tightest rank ({who}; GiB)", style="bold")]
    lines += paragraph("rest = pre-load x fraction - weights - deductions; a part below pre-load is", width, INDENT)
    lines += paragraph("what it takes of the card, x the fraction", width, INDENT)
    lines += grid(heading, rows, width, INDENT)
    return lines + [text for note in _unknown(work) for text in paragraph(note, width, INDENT, INDENT * 2)]


def _is_shown(piece: Piece) -> bool:
    return abs(piece.delta_bytes) >= SHOWN or abs(piece.delta_tokens or 0) > 1  # one is the rounding of two


def _line(piece: Piece, work: Arithmetic) -> Line:
    name = part_name(piece.part)
    cells = tuple(_value(piece, value) for value in piece.values)
    name = f"{INDENT}{name}" if piece.of else name
    return Line(name, (*cells, _signed(piece.delta_bytes), *_tokens(work, piece.delta_tokens)))


def _value(piece: Piece, value: float | int | None) -> str:
    if value is None:
        return UNKNOWN
    if piece.part == "fraction":
        return fraction(value)
    return number(int(value)) if piece.part == "bytes_per_token" else gib(int(value))


def _signed(count: int) -> str:
    return signed_gib(count).removesuffix(" GiB")


def _tokens_heading(work: Arithmetic) -> tuple[str, ...]:
    return ("tokens",) if work.delta_tokens is not None else ()


def _tokens(work: Arithmetic, count: int | None) -> tuple[str, ...]:
    if work.delta_tokens is None:
        return ()
    return (UNKNOWN if count is None else f"{count:+,}",)


def _unknown(work: Arithmetic) -> Iterator[str]:
    for piece in work.pieces:
        if piece.note is not None:
            yield f"{part_name(piece.part)}: {piece.note}"
