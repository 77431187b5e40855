"""Figures that a log and the events of one run both have, side by side: one row a figure, one table of where they are.

Worked example: `Load weight end. ... avail mem=134.03 GB` of TP0 stands beside `free_bytes` of TP0's `weights.load`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.timeline.log_model import Unit
from sglang_probe.timeline.logs.measured import Measured, measured
from sglang_probe.timeline.logs.seats import Seat, seats_of
from sglang_probe.timeline.logs.tokens import pool_bytes, state_bytes
from sglang_probe.timeline.model import Process, Reading, Run, Step, Worker
from sglang_probe.timeline.processes import is_cpu, ranks_of
from sglang_probe.timeline.values import integer, number

EMPTIED: Final = "SGLang gave torch's cached memory back before it read, and the probe did not"
MOVES: Final = "a host's memory moves between two readings"
_BESIDE: Final = frozenset({"request", "mamba"})
"""Kinds of pools that hold no KV tokens."""


class Figure(NamedTuple):
    """One figure, as the log prints it and as the events have it."""

    what: str
    label: str
    fact: Fact
    unit: Unit
    log: int | float
    precision: int | float
    event: int | float
    may_exceed: int = 0
    """By how much the log's may be more for a known reason: torch's cache, of a reading of free memory."""
    moves: bool = False
    """A reading of a host's memory."""

    @property
    def difference(self) -> int | float:
        """Return log - event."""
        return self.log - self.event

    @property
    def agrees(self) -> bool:
        """Say whether the log's figure is the events' one, as far as it tells."""
        return abs(self.difference) <= self.precision

    @property
    def reason(self) -> str | None:
        """Return why they may differ though both are right; None where nothing known explains it."""
        if self.moves:
            return MOVES
        return EMPTIED if 0 < self.difference <= self.may_exceed + self.precision else None


class _Side(NamedTuple):
    """One model of a rank: what the log says of it, and what its events do."""

    seat: Seat
    owner: int
    process: Process
    label: str

    def facts(self, *kinds: str) -> list[Fact]:
        return self.seat.of(self.owner, *kinds)

    def steps(self, phase: str) -> list[Step]:
        """Return the outermost steps of this phase of this model, that ended."""
        phases = [step for step in self.process.steps if step.phase == phase]
        own = [step for step in phases if self.is_own(step.worker, step.draft_index)]
        inside = {step.id for step in own}
        return [step for step in own if step.parent not in inside]

    @property
    def worker(self) -> Worker | None:
        return next((one for one in self.process.workers if self.is_own(one.worker, one.draft_index)), None)

    def is_own(self, worker: str | None, index: int | None) -> bool:
        """Say whether a step is of this model."""
        if self.owner == 0:
            return worker != "draft"
        return worker == "draft" and (index or 0) == self.owner - 1


def ranks_by_label(run: Run) -> dict[str, Process]:
    """Return the ranks of a run by the label that SGLang prints; a label that is there twice is left out."""
    found: dict[str, Process] = {}
    twice: set[str] = set()
    for process in ranks_of(run):
        name = (process.label or "").rpartition(":")[2]
        twice |= {name} & found.keys()
        found[name] = process
    return {name: process for name, process in found.items() if name and name not in twice}


def figures_of(log: LogRun, run: Run) -> Iterator[Figure]:
    """Yield every figure that both have."""
    ranks = ranks_by_label(run)
    for seat in seats_of(log)[0]:
        process = ranks.get(seat.label or "")
        if process is None:
            continue
        for owner in range(seat.models):
            side = _Side(seat, owner, process, seat.label or "")
            for rows in _ROWS:
                yield from rows(side)


def _free(side: _Side, what: str, fact: Fact | None, event: int | None, reading: Reading | None) -> Iterator[Figure]:
    """Yield a reading of free memory. What torch keeps without using it, SGLang gives back first, in most releases."""
    said = measured(fact, "avail")
    if fact is None or said is None or event is None:
        return
    cached = _cached(reading)
    yield Figure(
        what, side.label, fact, "bytes", *said, event, may_exceed=cached, moves=is_cpu(side.process)
    )


def _cached(reading: Reading | None) -> int:
    if reading is None or reading.torch_reserved_bytes is None or reading.torch_allocated_bytes is None:
        return 0
    return max(reading.torch_reserved_bytes - reading.torch_allocated_bytes, 0)


def _size(side: _Side, what: str, fact: Fact, said: Measured | None, event: int | None) -> Iterator[Figure]:
    if said is not None and event is not None:
        yield Figure(what, side.label, fact, "bytes", *said, event, moves=is_cpu(side.process))


def _count(side: _Side, what: str, fact: Fact, said: int | None, event: int | None) -> Iterator[Figure]:
    if said is not None and event is not None:
        unit: Unit = "requests" if "requests" in what else "tokens"
        yield Figure(what, side.label, fact, unit, said, 0, event)


def _own(step: Step, name: str) -> int | None:
    """Return what a step took by SGLang's own float, of which the log prints two decimals; else by its readings."""
    gib = number(step.attributes, name)
    return step.cost_bytes if gib is None or abs(gib) > 1 << 20 else round(gib * (1 << 30))


def _weights(side: _Side) -> Iterator[Figure]:
    loads = [step for step in side.steps("weights.load") if step.attributes.get("part") != "lora"]
    begins, ends = side.facts("weights_begin"), side.facts("weights_end")
    if not loads:
        return
    if begins:
        yield from _free(side, "weights.load: free before it", begins[0], loads[0].free_before_bytes, loads[0].before)
    if ends and loads[-1].state == "ok":
        last = loads[-1]
        yield from _free(side, "weights.load: free after it", ends[-1], last.free_bytes, last.after)
    if len(ends) == len(loads) == 1 and loads[0].state == "ok":
        cost = _own(loads[0], "weight_load_mem_usage_gib")
        yield from _size(side, "weights.load: cost", ends[0], measured(ends[0], "mem_usage"), cost)


def _dist(side: _Side) -> Iterator[Figure]:
    """`mem usage` of the distributed init, against what its communicators and buffers took."""
    inits, ends = side.steps("dist.init"), side.facts("dist_init_end")
    if len(inits) != 1 or len(ends) != 1 or inits[0].state != "ok":
        return
    init = inits[0]  # it makes the CUDA context: nothing can be read before it
    inner = [step for step in side.process.steps if step.parent == init.id and step.free_before_bytes is not None]
    before = next((step.free_before_bytes for step in (init, *inner) if step.free_before_bytes is not None), None)
    after = next((step.free_bytes for step in reversed(inner) if step.free_bytes is not None), init.free_bytes)
    if before is not None and after is not None:
        yield from _size(side, "dist.init: cost", ends[0], measured(ends[0], "mem_usage"), before - after)


def _pools(side: _Side) -> Iterator[Figure]:
    worker, ends, steps = side.worker, side.facts("pool_end"), side.steps("kv.pool")
    if ends and steps and steps[-1].state == "ok":
        yield from _free(side, "kv.pool: free after it", ends[-1], steps[-1].free_bytes, steps[-1].after)
    if worker is None or worker.kv is None:
        return
    made = side.facts("kv_alloc")
    pools = [pool for pool in worker.kv.pools if pool.kind not in _BESIDE]
    if len(made) == len(pools):
        for fact, pool in zip(made, pools, strict=True):
            yield from _count(side, "kv.pool: tokens", fact, fact.count("tokens"), pool.tokens)
            yield from _size(side, "kv.pool: size", fact, _kv_size(fact), pool.bytes)
    for fact in side.facts("kv_cap")[-1:]:
        yield from _count(side, "kv.profile: tokens", fact, fact.count("profiled"), worker.kv.profiled_tokens)
        yield from _count(side, "max_total_tokens given", fact, fact.count("asked"), worker.kv.max_total_tokens_given)
    states, built = side.facts("mamba_alloc"), [pool for pool in worker.kv.pools if pool.kind == "mamba"]
    if len(states) == len(built) == 1:
        yield from _size(side, "kv.pool: recurrent state", states[0], state_bytes(states[0]), built[0].bytes)


def _kv_size(fact: Fact) -> Measured | None:
    """Return what a line says of a pool's size; addresses alone are no memory yet."""
    return None if fact.values.get("bound") is True else pool_bytes(fact)


def _swa(side: _Side) -> Iterator[Figure]:
    steps = side.steps("kv.pool")
    for fact in side.facts("swa_tokens")[-1:]:
        for name in ("full", "swa") if steps else ():
            event = integer(steps[-1].attributes, f"{name}_max_total_num_tokens")
            yield from _count(side, f"kv.pool: tokens of {name} attention", fact, fact.count(name), event)


def _graphs(side: _Side) -> Iterator[Figure]:
    """Captures by kind and in their order; where the log and the events do not have as many, none is compared."""
    captures = [step for step in side.process.steps if step.phase == "graph.capture"]
    parents = {step.parent for step in captures}
    leaves = [step for step in captures if step.id not in parents and step.attributes.get("captured") is not False]
    for kind in ("decode", "prefill"):
        steps = [step for step in leaves if step.detail == kind and side.is_own(step.worker, step.draft_index)]
        begins = [fact for fact in side.facts("graph_begin") if fact.text("graph") == kind]
        ends = [fact for fact in side.facts("graph_end") if fact.text("graph") == kind]
        if len(begins) == len(steps):
            for fact, step in zip(begins, steps, strict=True):
                what = f"graph.capture {kind}: free before it"
                yield from _free(side, what, fact, step.free_before_bytes, step.before)
        done = [step for step in steps if step.state == "ok"]
        if len(ends) == len(done):
            for fact, step in zip(ends, done, strict=True):
                yield from _free(side, f"graph.capture {kind}: free after it", fact, step.free_bytes, step.after)
                cost = _own(step, "graph_mem_usage_gib")
                yield from _size(side, f"graph.capture {kind}: cost", fact, measured(fact, "mem_usage"), cost)


def _capacity(side: _Side) -> Iterator[Figure]:
    roots = [step for step in side.process.steps if step.phase == "scheduler.init"]
    worker = side.worker
    for fact in side.facts("capacity")[-1:]:
        tokens = None if worker is None or worker.kv is None else worker.kv.tokens
        yield from _count(side, "tokens in force", fact, fact.count("max_total_num_tokens"), tokens)
        if roots and roots[-1].state == "ok":
            yield from _free(side, "scheduler.init: free after it", fact, roots[-1].free_bytes, roots[-1].after)
        for step in side.steps("kv.pool")[-1:]:
            event = integer(step.attributes, "max_running_requests")
            yield from _count(side, "requests in force", fact, fact.count("max_running_requests"), event)


def _refused(side: _Side) -> Iterator[Figure]:
    budget = None if side.worker is None else side.worker.budget
    for fact in side.facts("no_memory")[:1]:
        pairs = (
            ("fraction", None if budget is None else budget.mem_fraction_static),
            ("minimum", None if budget is None else budget.minimum_viable_fraction_printed),
        )
        for name, event in pairs:
            said = number(fact.values, name)
            if said is not None and event is not None:
                yield Figure(f"kv.profile: {name}", side.label, fact, "fraction", said, _DECIMALS, event)


_DECIMALS: Final = 0.00006
"""Half of the last of four decimals, and what floats lose."""
_ROWS: Final[Sequence[Callable[[_Side], Iterator[Figure]]]] = (
    _dist,
    _weights,
    _pools,
    _swa,
    _graphs,
    _capacity,
    _refused,
)
