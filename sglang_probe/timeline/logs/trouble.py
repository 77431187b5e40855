"""Errors in a log: which came first, on which rank, in which phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.collect.logs.exceptions import ends_process
from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.seats import TROUBLE, Seat
from sglang_probe.timeline.model import Failure

BUDGET: Final = "kv.profile"
_FRAMES: Final = (
    ("profile_max_num_token", BUDGET),
    ("_profile_available_bytes", BUDGET),
    ("cuda_graph", "graph.capture"),
    ("init_device_graphs", "graph.capture"),
    ("in capture", "graph.capture"),
    ("init_memory_pool", "kv.pool"),
    ("alloc_memory_pool", "kv.pool"),
    ("memory_pool.py", "kv.pool"),
    ("init_attention_backend", "attention.init"),
    ("in load_model", "weights.load"),
    ("model_loader", "weights.load"),
    ("init_torch_distributed", "dist.init"),
    ("init_distributed_environment", "dist.init"),
)
"""Words of a traceback's frames -> the phase that they stand in, the innermost first."""


class Trouble(NamedTuple):
    """An error that a log tells."""

    position: int
    """Among the log's facts."""
    label: str | None
    fact: Fact
    failure: Failure
    is_budget: bool
    """SGLang's own words: the budget left nothing."""


def troubles_of(facts: Sequence[Fact]) -> list[Trouble]:
    """Return the errors in the order of the text, each once; one that was caught, or that its rank survived, is none.
    """
    found: dict[tuple[str, int], Trouble] = {}
    gone_on = survived(facts)
    for position, fact in enumerate(facts):
        if fact.kind not in TROUBLE or id(fact) in gone_on:
            continue
        key = fact.entry.file, fact.entry.line
        before = found.get(key)
        budget = fact.kind == "no_memory" and fact.text("family") in {"fraction", "weights"}
        if before is None:
            found[key] = Trouble(position, fact.label, fact, failure_of(fact), budget)
        else:
            failure = failure_of(fact) if fact.kind == "exception" else before.failure
            found[key] = before._replace(failure=failure, is_budget=before.is_budget or budget)
    return list(found.values())


def is_bind(fact: Fact) -> bool:
    """Say whether a line says that the server's port is taken: it ends then, whatever was ready."""
    return fact.kind == "not_memory" and fact.text("what") == "port_in_use" and "[Errno 98]" in fact.entry.text


def survived(facts: Sequence[Fact]) -> frozenset[int]:
    """Return the ids of the errors that no process ended of: caught, or followed by a step that their rank ended.

    A rank that was not ready yet and printed the end of a later step of its start had gone on. A line that names no
    rank and has no prefix of SGLang's may be any process's, and what announces a process's end is one.
    """
    ready = next((position for position, fact in enumerate(facts) if fact.kind == "ready"), len(facts))
    last = {fact.label: position for position, fact in enumerate(facts) if fact.kind in _GOES_ON}
    ends = {fact.entry.line for fact in facts if fact.kind in TROUBLE and ends_process(fact.entry.text)}
    return frozenset(
        id(fact)
        for position, fact in enumerate(facts)
        if fact.kind in TROUBLE
        and (
            fact.values.get("caught") is True
            or (
                (fact.label is not None or fact.entry.prefixed)
                and fact.entry.line not in ends
                and position < min(ready, last.get(fact.label, -1))
            )
        )
    )


_GOES_ON: Final = frozenset({"weights_end", "pool_end", "graph_end", "capacity"})
"""Ends of steps of a start, as a rank prints them."""


def failure_of(fact: Fact) -> Failure:
    """Return an error as the timeline has it; its id is its place in the text."""
    place = f"{fact.entry.file}:{fact.entry.line}"
    if fact.kind == "exception":
        said = {name: fact.text(name) for name in ("type", "message", "stacktrace")}
        return Failure(id=place, **said)
    kind, colon, message = fact.entry.text.partition(": ")
    is_type = bool(colon) and kind.replace(".", "").replace("_", "").isalnum() and kind.endswith(_TYPE_ENDS)
    return Failure(id=place, type=kind if is_type else None, message=message if is_type else fact.entry.text)


_TYPE_ENDS: Final = ("Error", "Exception")


def phase_in_frames(failure: Failure) -> str | None:
    """Return the phase that the innermost telling frame of a traceback stands in; None where none does."""
    for line in reversed((failure.stacktrace or "").splitlines()):
        if line.lstrip().startswith("File "):
            phase = next((phase for words, phase in _FRAMES if words in line), None)
            if phase is not None:
                return phase
    return None


def came_to(seat: Seat, position_of: dict[int, int], before: int) -> str | None:
    """Return the phase that a rank was in at a place of the text: begun and not ended."""
    phase: str | None = None
    for fact in seat.facts:
        if position_of[id(fact)] >= before:
            break
        if fact.kind in _BEGINS:
            phase = _BEGINS[fact.kind]
        elif fact.kind in _ENDS:
            phase = None
    return phase


_BEGINS: Final = {"dist_init_begin": "dist.init", "weights_begin": "weights.load", "graph_begin": "graph.capture"}
_ENDS: Final = frozenset({"dist_init_end", "mem_baseline", "weights_end", "graph_end", "pool_end", "capacity"})
