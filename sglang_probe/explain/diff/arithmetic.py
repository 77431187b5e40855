"""The difference of two budgets, taken apart so that the parts re-add to the whole to the byte.

Mean values make it symmetric: delta(P x f) = mean(P) x delta(f) + mean(f) x delta(P). What the parts leave, their
rounding included, is `other`. Worked example, in GiB: pre-load 93.999 on both sides, fraction 0.80 and 0.55, weights
72.302 on both: 93.999 x (0.55 - 0.80) = -23.500, which is the whole of 2.897 -> -20.603.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sglang_probe.explain.diff.model import Arithmetic, Piece
from sglang_probe.explain.diff.terms import Terms, terms_of
from sglang_probe.timeline.arithmetic import less
from sglang_probe.timeline.model import Run

WHOLE: Final = "pre_load"
"""The part that is made of the way from the card to the pre-load memory."""
UNKNOWN: Final = "unknown on a side: what it changed is in `other`"
REST_OF_WAY: Final = "idle_free"
"""Of the way: what no step of it explains. Where nothing was read before the context, others' memory is in it."""


def arithmetic_of(baseline: Run, candidate: Run) -> Arithmetic | None:
    """Return the difference of the tightest ranks' budgets; None where one of them is not known."""
    mixed = (baseline.source == "log") != (candidate.source == "log")
    before, after = terms_of(baseline, mixed=mixed), terms_of(candidate, mixed=mixed)
    if before is None or after is None:
        return None
    before, after = _one_token(before, after)
    whole = after.rest - before.rest
    pieces = [piece for piece in _pieces(before, after) if not _cannot_be_told(piece)]
    other = whole - sum(piece.delta_bytes for piece in pieces if piece.of is None)
    precision = _precision("rest", before, after)
    left_open = None if precision is None else precision + sum(piece.precision_bytes or 0 for piece in pieces)
    pieces.append(
        Piece(part="other", delta_bytes=other, alone_rest_bytes=after.rest - other, precision_bytes=left_open)
    )
    return Arithmetic(
        labels=(before.label, after.label),
        rest_bytes=(before.rest, after.rest),
        delta_bytes=whole,
        tokens=(before.tokens, after.tokens),
        delta_tokens=less(after.tokens, before.tokens),
        pieces=tuple(_worth_it(list(_in_tokens(pieces, before, after)))),
        precision_bytes=precision,
    )


def _one_token(before: Terms, after: Terms) -> tuple[Terms, Terms]:
    """Take the better known size of a token for both, where they are the same as far as their logs tell."""
    sizes = sorted((one.precisions.get("token", 0), one.token) for one in (before, after) if one.token is not None)
    if len(sizes) < 2 or not sizes[1][0] or abs(sizes[0][1] - sizes[1][1]) > sizes[0][0] + sizes[1][0]:
        return before, after
    return before._replace(token=sizes[0][1]), after._replace(token=sizes[0][1])


def _precision(name: str, before: Terms, after: Terms, factor: float = 1.0) -> int | None:
    """Return how far off the difference of a term may be: the errors add up; None where it is exact."""
    known = before.precisions.get(name, 0) + after.precisions.get(name, 0)
    return math.ceil(known * abs(factor)) or None


def _cannot_be_told(piece: Piece) -> bool:
    """Say whether a part is smaller than what its logs leave open."""
    return piece.precision_bytes is not None and 0 < abs(piece.delta_bytes) <= piece.precision_bytes


def _worth_it(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the parts that say something; one of which a part does is never missing above it."""
    kept = [piece for piece in pieces if _is_worth_it(piece)]
    above = {piece.of for piece in kept}
    yield from (piece for piece in pieces if piece in kept or piece.part in above)


def _is_worth_it(piece: Piece) -> bool:
    return piece.delta_bytes != 0 or bool(piece.delta_tokens) or piece.note is not None


def _pieces(before: Terms, after: Terms) -> Iterator[Piece]:
    mean_pre_load = (before.pre_load + after.pre_load) / 2
    mean_fraction = (before.fraction + after.fraction) / 2
    step = after.fraction - before.fraction
    yield Piece(
        part="fraction",
        values=(before.fraction, after.fraction),
        delta_bytes=round(mean_pre_load * step),
        alone_rest_bytes=after.rest - round(after.pre_load * step),
        precision_bytes=_precision("pre_load", before, after, step / 2),
    )
    whole = after.pre_load - before.pre_load
    yield Piece(
        part=WHOLE,
        values=(before.pre_load, after.pre_load),
        delta_bytes=round(mean_fraction * whole),
        alone_rest_bytes=after.rest - round(after.fraction * whole),
        precision_bytes=(precision := _precision("pre_load", before, after, mean_fraction)),
    )
    if precision is None or abs(mean_fraction * whole) > precision:
        yield from _of_the_way(before, after, mean_fraction)
    for name in {**before.taken, **after.taken}:
        yield from _taken(name, before, after)


def _taken(name: str, before: Terms, after: Terms) -> Iterator[Piece]:
    missing = 0 if name.startswith("deductions.") else None
    values = before.taken.get(name, missing), after.taken.get(name, missing)
    if values[0] is None or values[1] is None:
        yield from [] if values == (None, None) else [Piece(part=name, values=values, note=UNKNOWN)]
        return
    changed = values[0] - values[1]
    yield Piece(
        part=name,
        values=values,
        delta_bytes=changed,
        alone_rest_bytes=after.rest - changed,
        precision_bytes=_precision(name, before, after),
    )


def _of_the_way(before: Terms, after: Terms, mean_fraction: float) -> Iterator[Piece]:
    """The parts of the pre-load memory's: of each byte of pre-load memory the fraction is the budget's."""
    whole = after.pre_load - before.pre_load
    left, rounded = whole, round(mean_fraction * whole)
    for name, first in before.way.items():
        second = after.way[name]
        if first is None or second is None:
            continue  # then it is in what no step explains
        changed = first - second
        share = round(mean_fraction * changed)
        left, rounded = left - changed, rounded - share
        alone = after.rest - round(after.fraction * changed)
        values = (-first, -second) if name == "card" else (first, second)  # what a card has, not what it lacks
        yield Piece(part=name, of=WHOLE, values=values, delta_bytes=share, alone_rest_bytes=alone)
    alone = after.rest - round(after.fraction * left)
    yield Piece(part=REST_OF_WAY, of=WHOLE, delta_bytes=rounded, alone_rest_bytes=alone)


def _in_tokens(pieces: list[Piece], before: Terms, after: Terms) -> Iterator[Piece]:
    """Add what each piece is in tokens, and what a changed size of a token is; all re-add, the last takes the rounding.

    delta(R / t) = mean(1 / t) x delta(R) + mean(R) x delta(1 / t).
    """
    if not before.token or not after.token or before.tokens is None or after.tokens is None:
        yield from pieces
        return
    per_byte = (1 / before.token + 1 / after.token) / 2
    resized = round((before.rest + after.rest) / 2 * (1 / after.token - 1 / before.token))
    *known, other = [msgspec.structs.replace(one, delta_tokens=round(one.delta_bytes * per_byte)) for one in pieces]
    told = resized + sum(one.delta_tokens or 0 for one in known if one.of is None)
    yield from known
    yield Piece(
        part="bytes_per_token", values=(before.token, after.token), delta_tokens=resized, alone_rest_bytes=after.rest
    )
    yield msgspec.structs.replace(other, delta_tokens=after.tokens - before.tokens - told)
