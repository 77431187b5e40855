"""The base class of graph runners, and which sizes they capture."""

from __future__ import annotations

from typing import Any

from sglang.srt.model_executor.runner.base_runner import BaseRunner


def get_batch_sizes_to_capture(model_runner: Any, num_tokens_per_bs: int = 1) -> tuple[list[int], list[int]]:
    """Return the batch sizes that the request pool allows, and those that are compiled: none."""
    sizes = model_runner.server_args.cuda_graph_config.decode.bs
    largest = model_runner.req_to_token_pool.size
    return sorted({size for size in [*sizes, min(max(sizes), largest)] if size <= largest}), []


class BaseCudaGraphRunner(BaseRunner): ...
