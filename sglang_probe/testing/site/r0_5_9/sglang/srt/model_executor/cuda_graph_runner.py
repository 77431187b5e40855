"""Graphs of the decode phase."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.utils.common import log_info_on_rank0

logger = logging.getLogger(__name__)


def get_batch_sizes_to_capture(model_runner: Any, num_tokens_per_bs: int = 1) -> tuple[list[int], list[int]]:
    """Return the batch sizes that the request pool allows, and those that are compiled: none."""
    sizes, largest = model_runner.server_args.cuda_graph_bs, model_runner.req_to_token_pool.size
    return sorted({size for size in [*sizes, min(max(sizes), largest)] if size <= largest}), []


class CudaGraphRunner:
    def __init__(self, model_runner: Any) -> None:
        self.model_runner, self.device = model_runner, model_runner.device
        self.capture_bs, self.compile_bs = get_batch_sizes_to_capture(model_runner)
        log_info_on_rank0(logger, f"Capture cuda graph bs {self.capture_bs}")
        self.max_bs = max(self.capture_bs)
        self.capture()

    def capture(self) -> None:
        costs = phases.costs()
        self._fake_held = graphs.capture(
            self.capture_bs,
            costs.decode_graph_torch_bytes,
            costs.decode_graph_bytes,
            "graph.capture",
            self.capture_one_batch_size,
        )

    def capture_one_batch_size(self, bs: int, forward: Callable[[], Any], stream_idx: int | None = None) -> Any:
        return forward()
