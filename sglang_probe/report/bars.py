"""A bar of what a card's memory is spent on, for a terminal: each part has its letter and its colour, and what it shows
stands in figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.text import Text

INDENT: Final = "  "
EDGES: Final = ("[", "]")


class Part(NamedTuple):
    """A kind of memory, as it is drawn."""

    name: str
    letter: str
    style: str


PARTS: Final = (
    Part("weights", "W", "black on blue"),
    Part("KV", "K", "black on green"),
    Part("graphs", "G", "black on magenta"),
    Part("foreign", "F", "black on red"),
    Part("other", "o", "black on yellow"),
    Part("free", ".", ""),
)
FOREIGN: Final = "foreign"
"""The part that only cards with strangers on them have."""


def legend(*, foreign: bool) -> str:
    """Return what the letters mean; `foreign`: whether strangers' memory is drawn."""
    return ", ".join(f"{part.letter} {part.name}" for part in PARTS if foreign or part.name != FOREIGN)


def bar(amounts: Sequence[int | None], width: int) -> Text | None:
    """Return the bar of a card whose parts, in the order of `PARTS`, are these bytes; None where one that is needed is
    not known, or nothing is there to share."""
    known = [max(amount or 0, 0) for amount in amounts]
    whole = sum(known)
    if amounts[-1] is None or amounts[-2] is None or whole <= 0:
        return None
    room = width - len(INDENT) - len("".join(EDGES))
    cells = _shared(known, whole, room)
    pieces = [(part.letter * count, part.style) for part, count in zip(PARTS, cells, strict=True)]
    return Text.assemble(INDENT, EDGES[0], *pieces, EDGES[1])


def _shared(amounts: Sequence[int], whole: int, room: int) -> list[int]:
    """Share the cells: the last ones go to those that lost most by rounding down."""
    cells = [amount * room // whole for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda place: -(amounts[place] * room % whole))
    for place in by_remainder[: room - sum(cells)]:
        cells[place] += 1
    return cells
