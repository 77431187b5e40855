"""An out-of-memory error after the KV pool was built: whether the pool of the other side would have left enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.diff.arguments import field_of
from sglang_probe.explain.diff.links import name_of
from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.wording import set_to
from sglang_probe.explain.formula import terms_of
from sglang_probe.explain.oom import Shortage, shortage_of
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.figures import GIB, fraction, gib, number
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Kv, Run

FOLLOWS: Final = frozenset({"memory", "max_total_tokens", "pp_min", None})
"""What may have limited a pool whose bytes are those of its tokens."""


class Proof(NamedTuple):
    """A setting of the KV pool that explains a shortage."""

    says: str
    differences: tuple[str, ...]


class Lever(NamedTuple):
    """What decides the size of the pool."""

    field: str
    fraction: float
    cap: int | None
    """--max-total-tokens."""


def pool_proof(failed: Run, other: Run, rows: Sequence[Row]) -> Proof | None:
    """Return the setting with whose value on the other side more would have been free than was short.

    Worked example: at 0.99508 a pool takes 138.280 x (0.99508 - 0.909) = 11.903 GiB more than at 0.909, and 21.75 MiB
    were short: the fraction explains it. A pool that --max-total-tokens caps on both sides frees nothing.
    """
    subject = Subject(failed)
    lack = shortage_of(subject)
    seat = None if lack is None else _seat_of(subject, lack)
    theirs = Subject(other).tightest
    if lack is None or seat is None or theirs is None or not lack.short_bytes or lack.short_bytes < 0:
        return None
    for lever in _levers(seat, theirs):
        linked = [row for row in counted(rows) if field_of(row.key) == lever.field]
        freed = _freed(subject, seat, lever) if linked else None
        if freed is not None and freed > lack.short_bytes:
            says = f"{set_to(linked[0])} explains it: {_arithmetic(seat, lever, freed)}, and {mib(lack.short_bytes)}"
            return Proof(f"{says} were short on {lack.label}", tuple(name_of(row) for row in linked))
    return None


def _seat_of(subject: Subject, lack: Shortage) -> Seat | None:
    """Return the budget of the rank that was short, where its pool was built before."""
    seat = next((one for one in subject.seats if one.process is lack.process), None)
    if seat is None or seat.worker.kv is None or lack.step.phase in {"kv.pool", "kv.profile", "weights.load"}:
        return None
    return seat


def _levers(seat: Seat, theirs: Seat) -> Iterator[Lever]:
    own, other = seat.worker.kv or Kv(), theirs.worker.kv or Kv()
    fractions = seat.budget.mem_fraction_static, theirs.budget.mem_fraction_static
    if fractions[0] is not None and fractions[1] is not None:
        yield Lever("mem_fraction_static", fractions[1], own.max_total_tokens_given)
        yield Lever("max_total_tokens", fractions[0], other.max_total_tokens_given)


def _freed(subject: Subject, seat: Seat, lever: Lever) -> int | None:
    """Return the bytes that the pool of a rank would have left: the tokens are the fewest over the ranks."""
    kv, token = seat.worker.kv, token_bytes(seat.worker)
    if kv is None or kv.tokens is None or token is None or kv.limited_by not in FOLLOWS or not _is_known(subject):
        return None
    tokens = [_tokens(one, lever) for one in subject.seats]
    known = [count for count in tokens if count is not None]
    if len(known) < len(tokens) or min(known) <= 0:  # with that value it would not have come so far
        return None
    return (kv.tokens - min(known)) * token


def _is_known(subject: Subject) -> bool:
    return all(seat.budget.verified is not False for seat in subject.seats)


def _tokens(seat: Seat, lever: Lever) -> int | None:
    terms, token = terms_of(seat.budget), token_bytes(seat.worker)
    if terms is None or token is None:
        return None
    tokens = terms._replace(fraction=lever.fraction).tokens(token)
    return tokens if lever.cap is None else min(tokens, lever.cap)


def _arithmetic(seat: Seat, lever: Lever, freed: int) -> str:
    pre_load, own = gib(seat.budget.pre_load_bytes), fraction(seat.budget.mem_fraction_static)
    if lever.field == "mem_fraction_static":
        product = float(pre_load) * (float(own) - float(fraction(lever.fraction)))
        if gib(round(product * GIB)) == gib(freed):
            return f"its KV pool takes {pre_load} x ({own} - {fraction(lever.fraction)}) = {gib(freed)} GiB more"
        return f"its KV pool takes {mib(freed)} more"
    kept = seat.worker.kv or Kv()
    return f"its KV pool of {number(kept.tokens)} tokens takes {mib(freed)} more"
