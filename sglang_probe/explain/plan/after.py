"""What a rank took after its budget was computed: pools, attention, graphs, and what was free at the end."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

from sglang_probe.explain.scaling import SLOT_BYTES, blocks, capture_sizes, graph_bytes, list_bytes
from sglang_probe.explain.set_aside import end_of_start
from sglang_probe.explain.told import sizes_of
from sglang_probe.timeline.model import Kv, Pool, Process, Step, Worker

MOST_TENSORS: Final = 1 << 16


class Tensors(NamedTuple):
    """A pool's tensors, as far as they scale."""

    bytes: int
    tensors: int
    """How many equal ones; 1 where it is not known."""
    draft: bool = False
    mamba: bool = False
    """It goes with the recurrent deduction, not with the tokens."""


class Graphs(NamedTuple):
    """The graphs of one worker."""

    cost: int
    sizes: tuple[int, ...]
    draft: bool = False

    def up_to(self, most: int, *, draft: bool, sizes: tuple[int, ...] = ()) -> Graphs:
        """Return the graphs of batch sizes up to `most`, or of `sizes`; `draft`: with SGLang's sizes for a draft."""
        if not self.sizes or max(self.sizes) == most:
            return self
        replays = capture_sizes(max(self.sizes), draft=draft) == tuple(sorted(self.sizes))
        count = max(1, len(self.sizes) * most // max(self.sizes))
        planned = sizes or (capture_sizes(most, draft=draft) if replays else (*range(1, count), most))
        return self._replace(cost=graph_bytes(self.cost, len(self.sizes), len(planned)), sizes=planned)


class Requests(NamedTuple):
    """The request pool, `req_to_token`."""

    slots: int
    rows: int
    """As many as slots, or one more."""
    width: int
    cost: int
    """What the device lost by it."""


class After(NamedTuple):
    """All that is None was not measured; `reason` then says why."""

    tokens: int | None = None
    """With which the rest was measured."""
    page: int | None = None
    token: int | None = None
    """Bytes of a token in the target's own pool."""
    pools: tuple[Tensors, ...] = ()
    kv: int | None = None
    """What the device lost by the pools but the request pool."""
    requests: int | None = None
    """What it lost by the request pool."""
    slots: int | None = None
    shape: Requests | None = None
    attention: int | None = None
    graphs: tuple[Graphs, ...] | None = None
    free: int | None = None
    """At the end of the start."""
    beside: int | None = None
    """What else came after the budget."""
    lumped: bool = False
    """The request pool and attention are in `beside`: a log prints neither by itself."""
    reason: str | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batch sizes of the target's decode graphs."""
        return next((one.sizes for one in self.graphs or () if one.sizes and not one.draft), ())

    @property
    def graphs_bytes(self) -> int | None:
        """What all graphs took."""
        return None if self.graphs is None else sum(one.cost for one in self.graphs)

    def modelled(self, page: int) -> int:
        """What the pools' tensors and the list of pages take by themselves, in torch's blocks."""
        return sum(blocks(one.bytes, one.tensors) for one in self.pools) + blocks(list_bytes(self.tokens or 0, page))


def after_of(process: Process, kv: Kv | None, draft: Worker | None) -> After:
    """Return what a rank says.

    With a draft a start that did not come to its end may have measured the target's part alone, so only the pools of
    the target, which SGLang builds first, are taken of it.
    """
    tokens = None if kv is None or not kv.tokens or kv.tokens < 0 else kv.tokens
    pools = () if kv is None else kv.pools
    main = next((pool for pool in pools if pool.kind not in {"request", "mamba"}), None)
    page = main.page_size if main is not None and main.page_size and main.page_size > 0 else None
    request = next((pool for pool in pools if pool.kind == "request"), None)
    request_cost = _sum(_tops(process, "kv.pool", request=True))
    kv_cost = _sum(_tops(process, "kv.pool", request=False))
    free = end_of_start(process)
    whole = free is not None or draft is None
    return After(
        tokens=tokens,
        page=page,
        token=_token(main, tokens, page or 1),
        pools=tuple(_tensors(pools, draft)),
        kv=None if kv_cost is None or request_cost is None else kv_cost - request_cost,
        requests=request_cost,
        slots=None if request is None else request.tokens,
        shape=None if request_cost is None else _shape(request, request_cost),
        attention=_sum(_tops(process, "attention.init")) if whole else None,
        graphs=_graphs(process) if whole else None,
        free=free,
        reason=None if free is not None else f"{_stopped(process)}, so what comes after was not measured",
    )


def _tops(process: Process, phase: str, *, request: bool | None = None) -> list[Step]:
    """Return the outermost steps of a phase; with `request`, those of the request pool, or those that are not in it."""
    steps = [step for step in process.steps if step.phase == phase]
    if request:
        return [step for step in steps if step.attributes.get("pool") == "request"]
    inside = {step.id for step in process.steps if step.phase in {phase, "kv.profile"}}
    return [step for step in steps if step.parent not in inside]


def _sum(steps: list[Step]) -> int | None:
    """Return what they cost together; None where one of them is unknown or did not end well, or where there is none."""
    costs = [step.cost_bytes for step in steps if step.state == "ok"]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(steps) else None


def _token(pool: Pool | None, tokens: int | None, page: int) -> int | None:
    if pool is None or not pool.bytes or not tokens or pool.bytes < 0:
        return None
    token, over = divmod(pool.bytes, tokens + page)
    return token if not over and token else None


def _tensors(pools: tuple[Pool, ...], draft: Worker | None) -> Iterator[Tensors]:
    drafts = () if draft is None or draft.kv is None else draft.kv.pools
    for pool in (*pools, *drafts):
        if pool.kind != "request" and pool.bytes and pool.bytes > 0:
            layers = pool.layers if pool.layers and 0 < pool.layers < MOST_TENSORS else None
            each = 2 if pool.kind == "MHA" else 1
            yield Tensors(pool.bytes, layers * each if layers else 1, pool in drafts, pool.kind == "mamba")


def _shape(pool: Pool | None, cost: int) -> Requests | None:
    """Return rows and width of `req_to_token`: 134316048 B for 4,096 requests are 4,097 rows of 8,196 int32."""
    if pool is None or not pool.bytes or not pool.tokens or pool.bytes < 0 or pool.tokens < 0:
        return None
    for rows in (pool.tokens, pool.tokens + 1):
        width, over = divmod(pool.bytes, rows * SLOT_BYTES)
        if not over and width:
            return Requests(pool.tokens, rows, width, cost)
    return None


def _graphs(process: Process) -> tuple[Graphs, ...] | None:
    """Return each graph by itself, and what their outermost steps cost beside them; None where it did not end well."""
    tops = _tops(process, "graph.capture")
    whole = _sum(tops)
    if whole is None:
        return None
    found = []
    for step in process.steps:
        sizes = sizes_of(step.attributes.get("sizes"))
        if step.phase == "graph.capture" and step.cost_bytes is not None and sizes:
            by_batch = step.attributes.get("graph") != "prefill"
            found.append(Graphs(step.cost_bytes, sizes if by_batch else (), step.worker == "draft"))
    rest = whole - sum(one.cost for one in found)
    return (*found, Graphs(rest, ())) if rest or not found else tuple(found)


def _stopped(process: Process) -> str:
    unfinished = [step for step in process.steps if step.state != "ok"]
    inner = max(unfinished, key=lambda step: step.depth, default=None)
    return "the run did not come to the end of its start" if inner is None else f"the run stopped in {inner.phase}"


def scaled_pool(pool: Tensors, tokens: int, page: int, base: After, by: Fraction) -> int:
    """Return the bytes of a pool's tensors with other tokens, pages and bytes of a token."""
    ratio = Fraction(tokens + page, (base.tokens or 0) + (base.page or 1))
    return int(pool.bytes * ratio * by)
