"""The controlled experiment: two servers that started, everything the same but one thing, and what that did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sglang_probe.explain.diff.arguments import field_of
from sglang_probe.explain.diff.model import Arithmetic, Experiment, RankDiff, Row, Side
from sglang_probe.explain.diff.precision import AS_FAR
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.ranks import by_label
from sglang_probe.explain.diff.sides import last_free
from sglang_probe.explain.diff.strays import strays_in_words
from sglang_probe.explain.diff.tenants import on_a_cpu
from sglang_probe.explain.diff.terms import terms_of
from sglang_probe.explain.diff.values import delta
from sglang_probe.explain.diff.wording import DEFAULT, arrow, change, is_default_fraction, shown_change, switch, told
from sglang_probe.timeline.arithmetic import less
from sglang_probe.timeline.ledger_rows import NAMES
from sglang_probe.timeline.model import Run

TOUCHES: Final = (
    (r".*custom_all_?reduce.*", "custom_allreduce"),
    (r"mem_fraction_static|kv_cache_dtype|max_total_tokens", "kv_pool"),
    (r".*cuda_?graph.*", "graphs"),
    (r"max_running_requests", "request_pool"),
    (r".*attention_backend", "attention_workspace"),
    (r"speculative.*", "weights_draft"),
    (r".*lora.*", "lora"),
    (r"model_path|quantization|dtype|load_format|(tp|pp|ep)_size", "weights_target"),
    (r"NCCL_.*|nccl|enable_nccl.*", "communicator"),
)
"""The category of memory that an argument, variable or version is there for."""
SETTINGS: Final = frozenset({"sglang", "functions", "arguments given", "arguments effective", "variables", "versions"})
"""What a person sets; another process on a card is no experiment."""
RESULTS: Final = frozenset({"kv_pool", "free", "torch_cached", "unexplained"})
"""Categories that change with any other."""
ONE: Final = "arguments effective"
"""What is in effect follows from what was given: where something was, it is no second difference."""


def experiment_of(
    runs: tuple[Run, Run],
    sides: Sequence[Side],
    rows: Sequence[Row],
    ranks: Sequence[RankDiff],
    found: Arithmetic | None,
) -> Experiment | None:
    """Return what one difference did; None where there is not exactly one, or one of the runs did not start."""
    row = the_one(rows)
    if row is None or row.group not in SETTINGS or any(run.outcome != "ready" for run in runs):
        return None
    on_cpu = on_a_cpu(runs)  # its memory, and so its tokens, are a host's
    touched = Touched() if on_cpu else _touched(row, runs, ranks, found)
    before, after = sides
    free = _free(runs, sides)
    effect = Experiment(
        group=row.group,
        key=row.key,
        values=(row.values[0], row.values[1]),
        category=touched.category,
        category_delta_bytes=None if touched.sizes is None else touched.sizes[1] - touched.sizes[0],
        delta_tokens=None if on_cpu else less(after.tokens, before.tokens),
        delta_free_bytes=None if free is None else free.bytes[1] - free.bytes[0],
        delta_ready_s=delta((before.ready_s, after.ready_s)),
        says="",
    )
    because = "" if on_cpu else _because(row, rows, found)
    strays = strays_in_words(runs, [side.name for side in sides]) if touched.category == "run_processes" else None
    return msgspec.structs.replace(effect, says=_says(row, _Effect(effect, touched, free, because, strays)))


def the_one(rows: Sequence[Row]) -> Row | None:
    """Return the one difference that counts, if there is one: what follows from it is none beside it."""
    real = list(counted(rows))
    if any(row.group == "sglang" and row.key != "path" for row in real):
        real = [row for row in real if row.group != "functions"]
        real = [row for row in real if row.group != "sglang" or row.key == "version"] or real
    elif not any(row.group == "functions" for row in real):
        real = [row for row in real if (row.group, row.key) != ("sglang", "path")]  # the same code in another place
    primary = [row for row in real if row.group != ONE] or real
    return primary[0] if len(primary) == 1 else None


class Touched(NamedTuple):
    """The category of memory that a setting is there for, on both sides."""

    category: str | None = None
    sizes: tuple[int, int] | None = None


def _touched(row: Row, runs: tuple[Run, Run], ranks: Sequence[RankDiff], found: Arithmetic | None) -> Touched:
    name = field_of(row.key)
    category = next((category for pattern, category in TOUCHES if re.fullmatch(pattern, name)), None)
    if category == "custom_allreduce":  # what it cost the device: a part of it may be torch's, in whole blocks
        before, after = (None if terms is None else terms.way[category] for terms in map(terms_of, runs))
        return Touched(category, None if before is None or after is None else (before, after))
    rank = next((one for one in ranks if found is None or one.label == found.labels[1]), None)
    ledger = {} if rank is None else {one.category: one for one in rank.ledger if one.delta_bytes is not None}
    if category is None:
        known = {name: one.delta_bytes or 0 for name, one in ledger.items() if name not in RESULTS}
        category = max(known, key=lambda name: abs(known[name]), default=None)
    if category is None or category not in ledger:
        return Touched(category, None if category is None else (0, 0))
    first, second = ledger[category].bytes
    return Touched(category, (first or 0, second or 0))


class _Free(NamedTuple):
    """What is free at the end."""

    where: str
    bytes: tuple[int, int]
    precision: int | None = None
    """How far off their difference may be, where a side was read from a log."""


def _free(runs: tuple[Run, Run], sides: Sequence[Side]) -> _Free | None:
    """Return what is free on the candidate's tightest rank; on the fullest device where a side has no such rank."""
    name = sides[1].tightest
    ranks = [by_label(run).get(name) if name is not None else None for run in runs]
    before, after = (None if rank is None else last_free(rank) for rank in ranks)
    precision = sum(side.precisions.get("free_bytes", 0) for side in sides) or None
    where = f"on {name}"
    if before is None or after is None:
        before, after = (side.free_bytes for side in sides)
        where = "on the fullest device"
    return None if before is None or after is None else _Free(where, (before, after), precision)


class _Effect(NamedTuple):
    """What a sentence needs."""

    told: Experiment
    touched: Touched
    free: _Free | None
    because: str
    strays: str | None
    """Processes of the run that came where they do not belong, or went from there."""


def _because(row: Row, rows: Sequence[Row], found: Arithmetic | None) -> str:
    """Say that tokens changed by the fraction that SGLang makes of the rest, where it did."""
    default = next((one for one in rows if is_default_fraction(one) and one.differs and one is not row), None)
    piece = None if found is None else next((one for one in found.pieces if one.part == "fraction"), None)
    if default is None or found is None or piece is None or not piece.delta_tokens:
        return ""
    went = f"{DEFAULT} went {arrow(default, default.values)}"
    if abs(piece.delta_tokens - (found.delta_tokens or 0)) <= 1:
        return f", since {went}"
    return f", {piece.delta_tokens:+,} of them since {went}"


def _says(row: Row, effect: _Effect) -> str:
    """One line; where something is off in the candidate, the other way round too, as people ask for its cost."""
    turned = switch(row)
    there = f"{_effect(effect, 1)}{effect.because}{_beside(effect)}"
    if turned is None:
        return f"{told(row)}: {there}"
    what, (_, is_on) = turned
    if is_on:
        return f"{what} on: {there}"
    return f"{what} off: {there}. Put the other way, {what} on: {_effect(effect, -1)}"


def _effect(effect: _Effect, sign: int) -> str:
    parts = []
    category, sizes = effect.touched
    if effect.strays is not None and sign > 0:
        parts.append(effect.strays)
    elif sizes is not None:
        named = "" if category == "custom_allreduce" else f"{NAMES.get(str(category), category)} "
        parts.append(f"{named}{change(*sizes[::sign])} GiB")
    if effect.told.delta_tokens is not None:
        parts.append(f"{sign * effect.told.delta_tokens:+,} tokens")
    return ("; " if effect.strays is not None else ", ").join(parts) or "no memory that can be told"


def _beside(effect: _Effect) -> str:
    """What stays free at the end; how long single starts took is no effect."""
    free = effect.free
    if free is None:
        return ""
    if free.precision is not None and shown_change(*free.bytes, free.precision) is None:
        return f" (free at the end {free.where} {AS_FAR})"
    if free.precision is not None and abs(free.bytes[1] - free.bytes[0]) <= free.precision:
        return f" (free at the end {free.where} {AS_FAR})"
    return f" (free at the end {free.where} {change(*free.bytes, free.precision)} GiB)"
