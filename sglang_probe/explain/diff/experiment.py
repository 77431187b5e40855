"""The controlled experiment: two servers that started, everything the same but one thing, and what that did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sglang_probe.explain.diff.arguments import field_of
from sglang_probe.explain.diff.model import Arithmetic, Experiment, RankDiff, Row, Side
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.tenants import is_cpu, ranks_of
from sglang_probe.explain.diff.terms import terms_of
from sglang_probe.explain.diff.wording import signed_gib, switch, told
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
SETTINGS: Final = frozenset(
    {"sglang", "functions", "arguments given", "arguments effective", "variables", "versions"}
)
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
    on_cpu = any(is_cpu(rank) for run in runs for rank in ranks_of(run))  # its memory, and so its tokens, are a host's
    category, touched = (None, None) if on_cpu else _touched(row, runs, ranks, found)
    before, after = sides
    effect = Experiment(
        group=row.group,
        key=row.key,
        values=(row.values[0], row.values[1]),
        category=category,
        category_delta_bytes=touched,
        delta_tokens=None if on_cpu else _less(after.tokens, before.tokens),
        delta_free_bytes=_less(after.free_bytes, before.free_bytes),
        delta_ready_s=_less(after.ready_s, before.ready_s),
        says="",
    )
    return msgspec.structs.replace(effect, says=_says(effect, row))


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


def _touched(
    row: Row, runs: tuple[Run, Run], ranks: Sequence[RankDiff], found: Arithmetic | None
) -> tuple[str | None, int | None]:
    name = field_of(row.key)
    category = next((category for pattern, category in TOUCHES if re.fullmatch(pattern, name)), None)
    if category == "custom_allreduce":  # what it cost the device: a part of it may be torch's, in whole blocks
        before, after = (None if terms is None else terms.way[category] for terms in map(terms_of, runs))
        return category, _less(after, before)
    rank = next((one for one in ranks if found is None or one.label == found.labels[1]), None)
    ledger = {} if rank is None else {one.category: one.delta_bytes for one in rank.ledger}
    if category is None:
        known = {name: size for name, size in ledger.items() if size and name not in RESULTS}
        category = max(known, key=lambda name: abs(known[name]), default=None)
    return category, None if category is None else ledger.get(category) or 0


def _less(after: Any, before: Any) -> Any:
    return None if after is None or before is None else after - before


def _says(effect: Experiment, row: Row) -> str:
    """One line; where something is off in the candidate, the other way round too, as people ask for its cost."""
    turned = switch(row)
    if turned is None:
        return f"{told(row)}: {_effect(effect, 1)}{_beside(effect)}"
    what, (_, is_on) = turned
    if is_on:
        return f"{what} on: {_effect(effect, 1)}{_beside(effect)}"
    return f"{what} off: {_effect(effect, 1)}{_beside(effect)}. Put the other way, {what} on: {_effect(effect, -1)}"


def _effect(effect: Experiment, sign: int) -> str:
    parts = []
    if effect.category_delta_bytes is not None:
        named = "" if effect.category == "custom_allreduce" else f"{str(effect.category).replace('_', ' ')} "
        parts.append(f"{named}{signed_gib(sign * effect.category_delta_bytes)}")
    if effect.delta_tokens is not None:
        parts.append(f"{sign * effect.delta_tokens:+,} tokens")
    return ", ".join(parts) or "no memory that can be told"


def _beside(effect: Experiment) -> str:
    parts = []
    if effect.delta_free_bytes is not None:
        parts.append(f"free at the end {signed_gib(effect.delta_free_bytes)}")
    if effect.delta_ready_s is not None:
        parts.append(f"ready {effect.delta_ready_s:+.1f} s, of one start each")
    return f" ({'; '.join(parts)})" if parts else ""
