"""`graph.capture`: which graphs, of which sizes, or that there were none."""

from __future__ import annotations

from typing import Any

from sglang_probe.agent.calls import Attributes, Call, Reader, number

# The eager runner stands in for a graph runner where graphs are off.
_NO_GRAPHS = "EagerRunner"


def _reader(graph: str, *runners: str, usage: str | None = None) -> Reader:
    """Return the reader of graphs of one kind, whose runner is one of the attributes `runners`."""

    def begin(call: Call) -> Attributes:
        return {"graph": graph}

    def end(call: Call) -> Attributes:
        found = [getattr(call.instance, name, None) for name in runners]
        runner = next((item for item in found if item is not None), None)
        captured = runner is not None and type(runner).__name__ != _NO_GRAPHS
        return {
            "graph": graph,
            "captured": captured if runners else None,
            "sizes": _sizes(runner) if captured else None,
            "runner_class": None if runner is None else type(runner).__name__,
            "graph_mem_usage_gib": number(getattr(call.instance, usage, None)) if usage and captured else None,
            "private_pool_bytes": call.agent.private_pools() if captured else None,
        }

    return Reader(begin=begin, end=end)


def _sizes(runner: Any) -> list[int] | None:
    for name in ("capture_bs", "capture_num_tokens", "capture_tokens"):
        sizes = getattr(runner, name, None)
        if isinstance(sizes, (list, tuple)):
            return [int(size) for size in sizes]
    return None


ALL = _reader("all")
DECODE = _reader("decode", "decode_cuda_graph_runner", "graph_runner", usage="graph_mem_usage")
PREFILL = _reader("prefill", "prefill_cuda_graph_runner", "piecewise_cuda_graph_runner")
DRAFT = _reader("draft", "cuda_graph_runner", "cuda_graph_runner_for_draft_extend")
