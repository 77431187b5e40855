"""Which part of the budget made the difference, and which recorded difference is behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.diff.arithmetic import REST_OF_WAY, WHOLE
from sglang_probe.explain.diff.links import behind, name_of
from sglang_probe.explain.diff.model import Arithmetic, Cause, Piece, Row, Side
from sglang_probe.explain.diff.names import called
from sglang_probe.explain.diff.precision import is_log
from sglang_probe.explain.diff.printed import Printed, printed
from sglang_probe.explain.diff.strays import are_behind, strays_in_words
from sglang_probe.explain.diff.terms import LATE
from sglang_probe.explain.diff.values import SAME_ON_A_CARD
from sglang_probe.explain.diff.wording import set_to, signed, tenants_in_words, told
from sglang_probe.figures import added, fraction, gib, listed, number
from sglang_probe.timeline.model import Run

NAMES: Final = {
    "fraction": "fraction",
    "pre_load": "pre-load memory",
    "card": "the card's own memory",
    "others": "others' memory on the card",
    "idle_free": "free before, and the rest",
    "context": "CUDA context",
    "world_group": "world group",
    "communicators": "communicators",
    "custom_allreduce": "custom all-reduce",
    "weights": "weights",
    "weights_draft": "weights of the draft",
    "others_late": "others' memory that came after the pre-load memory was read",
    "slack_floor": "SGLang's floor on the slack",
    "own_term": "a term of SGLang's own",
    "bytes_per_token": "bytes of a token",
    "other": "other",
    "rounding": "rounding",
}
"""What the parts of a budget are called in print; a deduction has the name that SGLang gives it."""
WHOLE_FROM: Final = 0.9
"""Share of a difference from which a part is what explains it."""
MANY: Final = 3
SPARE: Final = 0.05
"""Share of a rest that pages and rounding may leave over: a cap leaves more."""
ROUNDED: Final = 0.002
EXACT: Final = 0.0005
"""GiB by which a formula of printed figures may be off, and from which it does not come out as printed."""


def part_name(part: str) -> str:
    """Return what a part of the budget is called."""
    return NAMES.get(part) or f"deduction {part.partition('.')[2]}"


def budget_causes(
    found: Arithmetic, rows: Sequence[Row], sides: Sequence[Side], runs: Sequence[Run]
) -> Iterator[Cause]:
    """Return what the difference of the budgets comes from, the greatest part first."""
    names = [side.name for side in sides]
    figures = printed(found)
    leaves = [piece for piece in found.pieces if piece.part != "pre_load" and not _is_small(piece)]
    for piece in sorted(leaves, key=lambda piece: -max(abs(piece.delta_bytes), _as_bytes(piece, found))):
        linked = behind(piece.part, rows)
        unseen = _free_before(piece, found, linked, runs)
        strays = strays_in_words(runs, names) if not linked and are_behind(piece, runs) else None
        subject = subject_of(piece, linked)
        named = f"{subject}," if _tenants_of(piece, linked) else subject
        what = f"{strays}, which" if strays else named
        share = piece.delta_bytes / found.delta_bytes if found.delta_bytes else None
        explains = turns(piece, found) or _is_the_whole(piece, found)
        yield Cause(
            side=names[1],
            part=piece.part,
            differences=tuple(name_of(row) for row in linked),
            delta_bytes=piece.delta_bytes,
            share=share,
            explains=explains,
            says=_says(piece, found, unseen or what, sides, figures)
            if explains
            else f"{strays or subject}: {worked(piece, figures)}",
        )


def _free_before(piece: Piece, found: Arithmetic, linked: Sequence[Row], runs: Sequence[Run]) -> str | None:
    """Say by how much less was free before the weights, where a log leaves it at that; None where more is known."""
    whole = next((one for one in found.pieces if one.part == WHOLE), None)
    if piece.part != REST_OF_WAY or linked or whole is None or not any(is_log(run) for run in runs):
        return None
    before, after = whole.values
    if before is None or after is None:
        return None
    less = signed(added(before, -after))
    return f"{less[1:]} GiB {'less' if less[0] == '+' else 'more'} were free before the weights: that"


def _is_small(piece: Piece) -> bool:
    tokens = piece.part == "bytes_per_token" and bool(piece.delta_tokens)
    return abs(piece.delta_bytes) < max(SAME_ON_A_CARD, (piece.precision_bytes or 0) + 1) and not tokens


def _as_bytes(piece: Piece, found: Arithmetic) -> float:
    """Return the weight of a part that changes tokens alone, so that it can stand among the others."""
    if piece.part != "bytes_per_token" or not found.delta_tokens:
        return 0.0
    return abs((piece.delta_tokens or 0) / found.delta_tokens * max(abs(found.delta_bytes), SAME_ON_A_CARD))


def turns(piece: Piece, found: Arithmetic) -> bool:
    """Say whether the candidate's budget would have come out as the baseline's, were this part alone the baseline's."""
    before, after = (rest > 0 for rest in found.rest_bytes)
    return before != after and piece.alone_rest_bytes is not None and (piece.alone_rest_bytes > 0) == before


def _is_the_whole(piece: Piece, found: Arithmetic) -> bool:
    """Say whether a part is the difference of two budgets that hold something; where neither does, none explains."""
    if any(rest <= 0 for rest in found.rest_bytes):
        return False
    part, whole = piece.delta_bytes, found.delta_bytes
    if piece.part == "bytes_per_token":
        part, whole = piece.delta_tokens or 0, found.delta_tokens or 0
    return abs(whole) > 0 and WHOLE_FROM <= part / whole <= 1 / WHOLE_FROM


def _says(piece: Piece, found: Arithmetic, what: str, sides: Sequence[Side], figures: Printed) -> str:
    arithmetic = worked(piece, figures)
    came_to = _outcome(found, sides)
    if turns(piece, found):
        return (
            f"{what} explains the outcome ({came_to}): {arithmetic}; with {called(sides[0].name)}'s value"
            f" {called(sides[1].name)}'s rest would be {_alone(piece, sides[1])} GiB"
        )
    return f"{what} explains {came_to}: {arithmetic}"


def _alone(piece: Piece, side: Side) -> str:
    """Return the candidate's rest with the baseline's value; of the fraction with the whole formula."""
    rest = gib(piece.alone_rest_bytes)
    if piece.part != "fraction" or side.available_bytes is None or side.pre_load_bytes is None:
        return rest
    available, pre_load, share = gib(side.available_bytes), gib(side.pre_load_bytes), fraction(piece.values[0])
    off = abs(float(available) - float(pre_load) * (1 - float(share)) - float(rest))
    if off > ROUNDED:  # a deduction or a floor is in it
        return rest
    return f"{available} - {pre_load} x (1 - {share}){' = ' if off < EXACT else ', about '}{rest}"


def _outcome(found: Arithmetic, sides: Sequence[Side]) -> str:
    """Return what changed: the tokens, where they are what the rest holds; else the rest, as a cap may decide."""
    if None not in found.tokens and found.delta_tokens and all(map(_fills, sides, found.rest_bytes)):
        return f"{number(found.tokens[0])} -> {number(found.tokens[1])} tokens"
    before, after = (gib(rest) for rest in found.rest_bytes)
    return f"rest {before} -> {after} GiB"


def _fills(side: Side, rest: int) -> bool:
    """Say whether a side's tokens are those that its rest holds; True where what a token takes is not known."""
    if not side.tokens or not side.bytes_per_token or rest <= 0:
        return True
    return abs(side.tokens * side.bytes_per_token - rest) <= SPARE * rest


def subject_of(piece: Piece, linked: Sequence[Row]) -> str:
    """Name the difference that is behind a part; the part itself where none is, or several could be."""
    tenants = _tenants_of(piece, linked)
    if tenants is not None:
        return tenants
    if linked and piece.part in {"fraction", "own_term", "bytes_per_token", "custom_allreduce"}:
        return listed([set_to(row) for row in linked], MANY)
    name = part_name(piece.part)
    return f"{name} ({listed([told(row) for row in linked], MANY)})" if linked else name


def _tenants_of(piece: Piece, linked: Sequence[Row]) -> str | None:
    """Return the other processes that came or went; None where they are not what is behind a part."""
    tenants = [row for row in linked if row.group == "tenants"]
    if not tenants or piece.part not in {"others", LATE, "idle_free"}:
        return None
    came, went = tenants_in_words(tenants, 1), tenants_in_words(tenants, 0)
    who = came or (f"{went}, gone since" if went else None)
    return f"the {who}" if who is not None and who.startswith("left-over") else who


def worked(piece: Piece, figures: Printed) -> str:
    """Return a part's arithmetic, with its values."""
    changed = f"{figures.of(piece.part)} GiB"
    if piece.part == "bytes_per_token":
        return f"{number(piece.values[0])} -> {number(piece.values[1])} B, {piece.delta_tokens or 0:+,} tokens"
    if piece.part in figures.products:
        of_it = "by the device's own count of what was in use before, " if piece.part == "others" else ""
        return f"{of_it}{figures.products[piece.part]} = {changed}"
    if None in piece.values or piece.of is not None or piece.part == "fraction":
        return changed
    before, after = (gib(round(value)) for value in piece.values)
    if piece.part == "own_term":
        return f"{after} GiB taken that no known term takes, {before} before: {changed}"
    return f"{before} -> {after} GiB, {changed} of the budget"
