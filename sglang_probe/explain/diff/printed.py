"""The parts of a budget's difference as they are printed: each comes out of the figures beside it, and they add up."""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.explain.diff.arithmetic import REST_OF_WAY, WHOLE
from sglang_probe.explain.diff.model import Arithmetic, Piece
from sglang_probe.explain.diff.values import SAME_ON_A_CARD
from sglang_probe.explain.diff.wording import signed
from sglang_probe.figures import GIB, fraction, gib, last_places, of_last_places

FAR: Final = 2
"""Units of the last decimal by which a product of printed figures may differ from the part itself."""
FINE: Final = 64 << 20
"""Bytes from which a share is known to five decimals."""


class Printed(NamedTuple):
    """Units of the last decimal, by part: those that are not below another add up to the whole, with the rounding."""

    parts: dict[str, int]
    products: dict[str, str]
    """Of a part that is a product: its factors."""
    whole: int
    rounding: int
    """What the rounding of all these figures adds up to."""

    def of(self, part: str) -> str:
        """Return a part with its sign."""
        return with_sign(self.parts[part])


def with_sign(count: int) -> str:
    """Return units of the last decimal as GiB with a sign."""
    return signed(of_last_places(count))


def printed(found: Arithmetic) -> Printed:
    """Return the figures of all parts.

    Worked example: 0.037 x 0.550 is 0.020, and -20.603 -> -20.582 is 0.021: 0.001 is rounding.
    """
    whole = _changed(*found.rest_bytes)
    products: dict[str, str] = {}
    parts: dict[str, int] = {}
    for piece in found.pieces:
        factors, figure = _figure(piece, found)
        parts[piece.part] = figure
        if factors:
            products[piece.part] = factors
    below = [parts[piece.part] for piece in found.pieces if piece.of == WHOLE]
    if any(below) and WHOLE in parts:
        parts[WHOLE] = sum(below)
    told = sum(parts[piece.part] for piece in found.pieces if piece.of is None and piece.part != "other")
    other = next((piece.delta_bytes for piece in found.pieces if piece.part == "other"), 0)
    is_part = abs(other) >= SAME_ON_A_CARD
    parts["other"] = whole - told if is_part else 0
    return Printed(parts, products, whole, 0 if is_part else whole - told)


def _changed(before: int, after: int) -> int:
    return last_places(after) - last_places(before)


def _figure(piece: Piece, found: Arithmetic) -> tuple[str, int]:
    """Return the factors of a part, where it is a product, and what it comes to."""
    own = last_places(piece.delta_bytes)
    factors = _factors(piece, found)
    if factors is None:
        before, after = piece.values
        taken = piece.part not in {WHOLE, "bytes_per_token", "fraction", "other"} and piece.of is None
        known = taken and before is not None and after is not None
        return "", _changed(int(after), int(before)) if known else own
    text, product = factors
    made = last_places(product * GIB)
    return text, made if abs(made - own) <= FAR else own


def _factors(piece: Piece, found: Arithmetic) -> tuple[str, float] | None:
    before, after = piece.values
    if piece.part == "fraction":
        if before == after:
            return None
        pre_load, low, high = gib(round(piece.delta_bytes / (after - before))), fraction(before), fraction(after)
        return f"{pre_load} x ({high} - {low})", float(pre_load) * (float(high) - float(low))
    if piece.of is None:
        return None
    if piece.part == REST_OF_WAY:
        lost, share = _lost(piece, found)
        text = signed(gib(lost))
        return (f"{text} GiB x {share}", float(text) * float(share)) if lost else None
    if before is None or after is None or before == after:
        return None
    if piece.part == "card":  # what a card has, not what it lacks
        before, after = after, before
    first, second, share = gib(int(before)), gib(int(after)), _share(piece, before - after, found)
    return f"({first} - {second}) x {share}", (float(first) - float(second)) * float(share)


def _lost(piece: Piece, found: Arithmetic) -> tuple[int, str]:
    """Return by how much the pre-load memory changed for what no step explains, and the share that is the budget's."""
    whole = next((one for one in found.pieces if one.part == WHOLE), None)
    if whole is None or whole.values[0] == whole.values[1]:
        return 0, ""
    share = whole.delta_bytes / (whole.values[1] - whole.values[0])
    return (round(piece.delta_bytes / share) if share else 0), _share(piece, 0, found)


def _share(piece: Piece, changed: float, found: Arithmetic) -> str:
    """Return the mean fraction, from the part in which it shows best."""
    whole = next((one for one in found.pieces if one.part == WHOLE), piece)
    of_whole = 0 if whole is piece else whole.values[1] - whole.values[0]
    part, change_ = (piece, changed) if abs(changed) > abs(of_whole) else (whole, of_whole)
    return fraction(round(abs(part.delta_bytes / change_), 5 if abs(change_) >= FINE else 4))


def of_the_whole(found: Arithmetic) -> list[tuple[str, str]]:
    """Return the parts that add up to the whole, with what the rounding adds to it."""
    figures = printed(found)
    shown = [
        (piece.part, figures.of(piece.part)) for piece in found.pieces if piece.of is None and figures.parts[piece.part]
    ]
    return [*shown, ("rounding", with_sign(figures.rounding))] if figures.rounding else shown
