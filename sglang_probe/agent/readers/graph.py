"""`graph.capture`: which graphs, of which sizes, or that there were none; where it died."""

from __future__ import annotations

import contextlib
from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, number
from sglang_probe.agent.readers.graph_failure import Died, died, sizes_of

# The eager runner stands in for a graph runner where graphs are off.
_NO_GRAPHS = "EagerRunner"
_USAGE = ("memory_usage_gb", "graph_mem_usage")


def _reader(graph: str, *runners: str, usage: str | None = None) -> Reader:
    """Return the reader of graphs of one kind, whose runner is returned, or is one of the attributes `runners`."""

    def begin(call: Call) -> Attributes:
        return {"graph": graph}

    def end(call: Call) -> Attributes:
        if call.error is not None:
            return _failed(graph, call.error)
        runner = _runner(call, runners)
        captured = runner is not None and type(runner).__name__ != _NO_GRAPHS
        return {
            "graph": graph,
            "captured": captured if runners else None,
            "sizes": sizes_of(runner) if captured else None,
            "runner_class": None if runner is None else type(runner).__name__,
            "graph_mem_usage_gib": _usage(call, usage) if captured else None,
            "private_pool_bytes": call.agent.private_pools() if captured else None,
        }

    return Reader(begin=begin, end=end)


def _runner(call: Call, names: tuple[str, ...]) -> Any:
    """Return the graph runner: a function's result or a field of it, else what the method left on its instance."""
    if call.instance is None:
        return getattr(call.result, "runner", call.result)
    found = [getattr(call.instance, name, None) for name in names]
    return next((item for item in found if item is not None), None)


def _usage(call: Call, name: str | None) -> float | int | None:
    """Return SGLang's own figure in GiB: a field of a function's result, else the instance's attribute `name`."""
    if call.instance is None:
        figures = (number(getattr(call.result, field, None)) for field in _USAGE)
        return next((figure for figure in figures if figure is not None), None)
    return number(getattr(call.instance, name, None)) if name else None


def _failed(graph: str, error: BaseException) -> Attributes:
    """Say where it died. What SGLang's objects do when they are looked at must not cost the rest."""
    where = Died()
    with contextlib.suppress(Exception):
        where = died(error)
    return {
        "graph": graph,
        "captured": None,
        "sizes": where.sizes,
        "runner_class": where.runner_class,
        "failed_size": where.size,
        "failed_at": where.function,
        "graph_mem_usage_gib": None,
        "private_pool_bytes": None,
    }


ALL = _reader("all")
DECODE = _reader("decode", "decode_cuda_graph_runner", "graph_runner", "cuda_graph_runner", usage="graph_mem_usage")
PREFILL = _reader("prefill", "prefill_cuda_graph_runner", "piecewise_cuda_graph_runner")
DRAFT = _reader("draft", "cuda_graph_runner", "cuda_graph_runner_for_draft_extend")


def _by_era(call: Call) -> Reader:
    """`init_cuda_graphs` captured the decode graphs itself before there was a method for them."""
    return ALL if hasattr(call.instance, "init_decode_cuda_graph") else DECODE


def _piecewise_end(call: Call) -> Attributes:
    if call.error is not None:
        return _failed("prefill", call.error)
    runner = call.instance
    return {
        "graph": "prefill",
        "captured": True,
        "sizes": sizes_of(runner),
        "runner_class": type(runner).__name__,
        "private_pool_bytes": call.agent.private_pools(),
    }


CUDA_GRAPHS = Reader(begin=lambda call: _by_era(call).begin(call), end=lambda call: _by_era(call).end(call))
PIECEWISE = Reader(begin=PREFILL.begin, end=_piecewise_end)
