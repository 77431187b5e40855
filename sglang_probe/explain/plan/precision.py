"""How far off a plan that leans on a log may be: it is made again with each printed figure at both of its ends.

A number is as uncertain as the changes that these make, added up: they are errors of roundings that know nothing of
each other, and the worst of all is what is stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from sglang_probe.explain.plan.from_log import ENDS, settled
from sglang_probe.explain.plan.model import Against, CannotPlan, Number, Plan, Wish
from sglang_probe.figures import GIB, listed
from sglang_probe.timeline.model import Run

MOST_TENSORS: Final = 256
"""Of a pool, where their number is not known: keys and values of 128 layers."""
BLOCK: Final = 2 << 20
"""Torch's blocks of large tensors, in bytes."""
Runs = Sequence[Run | None]


class Make(Protocol):
    """Make the plan of these runs; with a fraction at that one, whatever is wished for."""

    def __call__(self, runs: Runs, fraction: float | None = None) -> Plan: ...


def planned_from_logs(make: Make, runs: Runs) -> Plan:
    """Return the plan of these runs, each log of them set to its tokens; with the precision of its numbers.

    Raises:
        CannotPlan: the runs do not say enough.
    """
    ready: Runs = [None if run is None else settled(run) for run in runs]
    plan = make(ready)
    logs = [place for place, run in enumerate(runs) if run is not None and run.source == "log"]
    if not logs:
        return plan
    solved = next((one.planned for one in plan.numbers if one.name == "mem_fraction_static" and plan.wishes), None)
    pairs = [list(_ends(make, ready, runs, place, solved)) for place in logs]
    names = [run.run_id for run in runs if run is not None and run.source == "log"]
    return _with_precision(plan, [pair for found in pairs for pair in found], names)


def _ends(make: Make, ready: Runs, runs: Runs, place: int, fraction: float | None) -> Iterator[list[Plan]]:
    run = runs[place]
    for pair in ENDS if run is not None else ():
        made: list[Plan] = []
        for shift in pair:
            moved = [settled(run, shift) if at == place and run is not None else one for at, one in enumerate(ready)]
            try:
                made.append(make(moved, fraction))
            except CannotPlan:
                continue  # at that end there is no plan to compare with
        yield made


def _with_precision(plan: Plan, ends: Sequence[Sequence[Plan]], logs: Sequence[str]) -> Plan:
    numbers = tuple(_number(one, ends) for one in plan.numbers)
    against = tuple(_against(one, plan, ends) for one in plan.against)
    made = msgspec.structs.replace(plan, numbers=numbers, against=against)
    says = "".join(_says(made, logs))
    wishes = tuple(msgspec.structs.replace(one, holds=None) if _is_close(made, one) else one for one in made.wishes)
    answer = tuple(_as_far(said, made) for said in plan.says)
    return msgspec.structs.replace(made, wishes=wishes, says=(*answer, says) if says else answer)


def _is_close(plan: Plan, wish: Wish) -> bool:
    """Say whether a wish holds, or does not, by no more than the plan is good to."""
    return wish.spare is not None and 0 < _of_wish(plan, wish) >= abs(wish.spare)


def _as_far(said: str, plan: Plan) -> str:
    """Return a sentence of the answer as far as the log tells: what is close may hold, or may not."""
    for wish in plan.wishes:
        if said.startswith(f"{wish.flag} ") and _is_close(plan, wish):
            return said.replace(" holds, with ", " may hold, with ").replace(" does not hold: ", " may not hold: ")
    return said


def _number(number: Number, ends: Sequence[Sequence[Plan]]) -> Number:
    planned = run = 0.0
    for pair in ends:
        others = [other for made in pair if (other := made.number(number.name)) is not None]
        planned += _farthest(number.planned, [other.planned for other in others])
        run += _farthest(number.run, [other.run for other in others])
    planned += _tensors(number, ends)
    whole = number.unit != "fraction"
    return msgspec.structs.replace(number, precision=_kept(planned, whole), run_precision=_kept(run, whole))


def _tensors(number: Number, ends: Sequence[Sequence[Plan]]) -> float:
    """Return what torch's blocks may make of free memory where the pools are planned anew: a log does not print how
    many tensors they have, and each ends anywhere in its last block."""
    first = next((made for pair in ends for made in pair), None)
    tokens = None if first is None else first.number("tokens")
    moved = tokens is not None and tokens.run is not None and tokens.planned != tokens.run
    return MOST_TENSORS * BLOCK if moved and number.name in {"free_bytes", "kv_pool_bytes", "spare_bytes"} else 0


def _against(row: Against, plan: Plan, ends: Sequence[Sequence[Plan]]) -> Against:
    off = 0.0
    for pair in ends:
        others = [other for made in pair for other in made.against if other.name == row.name]
        off += _farthest(row.error, [other.error for other in others])
    number = None if row.error is None else plan.number(row.name)
    off += 0 if number is None else _tensors(number, ends)
    return msgspec.structs.replace(row, precision=_kept(off, row.unit != "fraction"))


def _farthest(value: float | None, others: Sequence[float | None]) -> float:
    return max((abs(other - value) for other in others if other is not None), default=0.0) if value is not None else 0.0


def _kept(off: float, whole: bool) -> int | float | None:
    if not off:
        return None
    return round(off) if whole else off


def _says(plan: Plan, logs: Sequence[str]) -> Iterator[str]:
    """Say how far off the main numbers may be."""
    parts = []
    for name, what in (("tokens", "tokens"), ("rest_bytes", "GiB of KV cache"), ("free_bytes", "GiB of free memory")):
        number = plan.number(name)
        if number is not None and number.precision is not None and number.planned is not None:
            parts.append(f"+- {shown(number.unit, number.precision)} {what}")
    if parts:
        whose = f"{listed(logs, 2)} print{'s' if len(logs) == 1 else ''}"
        yield f"Since {whose} memory to two decimals, that is good to {', '.join(parts)}."
    close = [wish.flag for wish in plan.wishes if _is_close(plan, wish)]
    if close:
        yield f" What {listed(close, 3)} has to spare, or lacks, is less than that."


def _of_wish(plan: Plan, wish: Wish) -> float:
    name = {"--tokens": "tokens", "--concurrency": "concurrency", "--free": "free_bytes"}[wish.flag]
    number = plan.number(name)
    return (number.precision if number is not None else None) or 0


def shown(unit: str, precision: float) -> str:
    """Return a precision as a person reads it: bytes in GiB, to as many decimals as say something."""
    if unit == "bytes":
        return next(text for places in (2, 3, 4, 6) if float(text := f"{precision / GIB:.{places}f}") or places == 6)
    return f"{precision:.5f}" if unit == "fraction" else f"{round(precision):,}"
