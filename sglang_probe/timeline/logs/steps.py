"""A rank's facts as steps: each line that begins or ends a phase, with what was free then and how far that may be off.

A log names no span. A step's id is the line that began it, or that ended it where the text lacks its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.measured import Measured, measured
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.tokens import held_of, pool_bytes
from sglang_probe.timeline.model import State, Step

ROOT: Final = "root"
_NOT_PRINTED: Final = "the log does not print it"
_GRAPH: Final = ("graph_begin", "graph_progress", "graph_end")
_POOLS: Final = ("kv_alloc", "kv_post_capture", "swa_mem", "mamba_alloc")


class Phase(msgspec.Struct):
    """A step while its lines are gathered."""

    phase: str
    owner: int
    begin: Fact | None = None
    end: Fact | None = None
    free_before: Measured | None = None
    free: Measured | None = None
    cost: Measured | None = None
    detail: str | None = None
    attributes: dict[str, Any] = {}
    inside: tuple[Phase, ...] = ()
    held: Measured | None = None
    """What the pools hold, by their own lines."""
    state: State | None = None

    @property
    def place(self) -> Fact:
        """Return the line that it stands at."""
        fact = self.begin or self.end
        assert fact is not None  # every phase comes from a line
        return fact


def phases_of(seat: Seat) -> list[Phase]:
    """Return what a rank came to, in the order of the text."""
    found: list[Phase] = []
    for owner in range(seat.models):
        found += _inits(seat, owner)
        found += _weights(seat, owner)
        found += _pools(seat, owner)
        found += _graphs(seat, owner)
    found += _allreduce(seat)
    order = {id(fact): position for position, fact in enumerate(seat.facts)}
    return sorted(found, key=lambda phase: order[id(phase.place)])


def _inits(seat: Seat, owner: int) -> Iterator[Phase]:
    facts = seat.of(owner, "dist_init_begin", "dist_init_end", "mem_baseline")
    begin = next((fact for fact in facts if fact.kind == "dist_init_begin"), None)
    ends = [fact for fact in facts if fact.kind != "dist_init_begin"]
    if not facts:
        return
    cost = next((size for fact in reversed(ends) if (size := measured(fact, "mem_usage")) is not None), None)
    yield Phase("dist.init", owner, begin, ends[-1] if ends else None, cost=cost, state="ok" if ends else None)


def _weights(seat: Seat, owner: int) -> Iterator[Phase]:
    for begin, end in _paired(seat.of(owner, "weights_begin", "weights_end"), "weights_begin"):
        free, taken = measured(end, "avail"), measured(end, "mem_usage")
        before = measured(begin, "avail")
        if before is None and free is not None and taken is not None:
            before = free.plus(taken)
        if taken is None and before is not None and free is not None:
            taken = before.minus(free)
        said = {} if end is None else end.values
        attributes = {
            "model_class": said.get("model_class"),
            "dtype": said.get("dtype"),
            "quantization": said.get("quantization"),
        }
        yield Phase(
            "weights.load", owner, begin, end, before, free, taken, said.get("model_class"),
            {name: value for name, value in attributes.items() if value is not None},
            state="ok" if end is not None else None,
        )  # fmt: skip


def _paired(facts: Sequence[Fact], opening: str) -> Iterator[tuple[Fact | None, Fact | None]]:
    """Yield begin and end; either may be missing where the text is cut."""
    begun: Fact | None = None
    for fact in facts:
        if fact.kind == opening:
            if begun is not None:
                yield begun, None
            begun = fact
        else:
            yield begun, fact
            begun = None
    if begun is not None:
        yield begun, None


def _pools(seat: Seat, owner: int) -> Iterator[Phase]:
    facts = seat.of(owner, *_POOLS)
    ends = seat.of(owner, "pool_end")
    inside = tuple(_pool(fact, owner) for fact in facts)
    if not facts and not ends:
        return
    end = ends[-1] if ends else None
    free = measured(end, "avail")
    before = _last_free(seat, (facts or ends)[0])
    cost = before.minus(free) if before is not None and free is not None else None
    begin = facts[0] if facts else None
    held = held_of(seat, owner)
    attributes: dict[str, Any] = {"pool": "all"}
    yield Phase(
        "kv.pool", owner, begin, end, before, free, cost, "all", attributes, inside, held, "ok" if end else None
    )


def _pool(fact: Fact, owner: int) -> Phase:
    size = pool_bytes(fact) or measured(fact, "size")
    k, v = measured(fact, "k"), measured(fact, "v")
    attributes = {
        "pool": {"mamba_alloc": "mamba", "swa_mem": "hybrid"}.get(fact.kind, "MLA" if fact.amount("kv") else "MHA"),
        "tokens": fact.count("tokens"),
        "slots": fact.count("slots"),
        "bytes": None if size is None else size.bytes,
        "k_bytes": None if k is None else k.bytes,
        "v_bytes": None if v is None else v.bytes,
        "dtype": fact.text("dtype"),
    }
    known = {name: value for name, value in attributes.items() if value is not None}
    return Phase("kv.pool", owner, fact, fact, detail=str(known["pool"]), attributes=known, state="ok")


def _last_free(seat: Seat, before: Fact) -> Measured | None:
    """Return what was printed as free last before a line of a rank."""
    found: Measured | None = None
    for fact in seat.facts:
        if fact is before:
            break
        if fact.kind != "graph_progress":
            found = measured(fact, "avail") or found
    return found


def _graphs(seat: Seat, owner: int) -> Iterator[Phase]:
    open_ones: list[Phase] = []
    done: list[Phase] = []
    for fact in seat.of(owner, *_GRAPH):
        graph = fact.text("graph") or "decode"
        if fact.kind == "graph_begin":
            attributes = {"graph": graph, "sizes": fact.values.get("sizes")}
            known = {name: value for name, value in attributes.items() if value is not None}
            open_ones.append(
                Phase("graph.capture", owner, fact, None, measured(fact, "avail"), detail=graph, attributes=known)
            )
        elif fact.kind == "graph_progress":
            if open_ones:
                open_ones[-1].attributes |= {"last_size": fact.count("size")}
        else:
            match = next((one for one in reversed(open_ones) if one.detail == graph), None)
            phase = match or Phase("graph.capture", owner, None, fact, detail=graph, attributes={"graph": graph})
            if match is not None:
                open_ones.remove(match)
            done.append(_ended(phase, fact))
    yield from done
    yield from open_ones


def _ended(phase: Phase, fact: Fact) -> Phase:
    phase.end, phase.state = fact, "ok"
    phase.free, phase.cost = measured(fact, "avail"), measured(fact, "mem_usage")
    if phase.free_before is None and phase.free is not None and phase.cost is not None:
        phase.free_before = phase.free.plus(phase.cost)
    if phase.cost is None and phase.free_before is not None and phase.free is not None:
        phase.cost = phase.free_before.minus(phase.free)
    return phase


def _allreduce(seat: Seat) -> Iterator[Phase]:
    for fact in seat.facts:
        if fact.kind == "allreduce_disabled":
            said = {"class": fact.text("cls"), "disabled": True, "disabled_reason": fact.text("reason")}
            yield Phase("allreduce.buffers", 0, fact, fact, detail=said["class"], attributes=said, state="ok")  # type: ignore[arg-type]


def step_of(phase: Phase, seat: Seat, parent: str | None, depth: int, state: State) -> Step:
    """Return a phase as a step."""
    place = phase.place
    known = [size for size in (phase.free_before, phase.free, phase.cost) if size is not None]
    cost = None if phase.cost is None else phase.cost.bytes
    return Step(
        id=id_of(phase),
        parent=parent,
        phase=phase.phase,
        detail=phase.detail,
        depth=depth,
        worker=worker_of(phase.owner),
        draft_index=draft_index_of(phase.owner, seat),
        ts=place.entry.ts,
        local_time=place.entry.stamp,
        duration_s=_seconds(phase),
        free_before_bytes=None if phase.free_before is None else phase.free_before.bytes,
        free_bytes=None if phase.free is None else phase.free.bytes,
        delta_bytes=None if cost is None else -cost,
        self_delta_bytes=None if cost is None else -cost,
        cost_bytes=cost,
        null_reason=_NOT_PRINTED if cost is None else None,
        state=state,
        state_reason="the text has no line of its beginning" if phase.begin is None else None,
        precision_bytes=max((size.precision for size in known), default=None),
        attributes=phase.attributes,
    )


def id_of(phase: Phase) -> str:
    """Return a step's id: the line that it stands at."""
    place = phase.place
    return f"{place.entry.file}:{place.entry.line}:{phase.phase}:{phase.detail or ''}"


def worker_of(owner: int) -> str:
    """Return whose a step is."""
    return "draft" if owner else "target"


def draft_index_of(owner: int, seat: Seat) -> int | None:
    """Return which draft it is, where there are several."""
    return owner - 1 if owner and seat.models > 2 else None


def _seconds(phase: Phase) -> float | None:
    elapsed = None if phase.end is None else phase.end.values.get("elapsed_s")
    return elapsed if isinstance(elapsed, float) else None
