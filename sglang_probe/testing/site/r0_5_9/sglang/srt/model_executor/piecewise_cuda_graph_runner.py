"""Graphs of the prefill phase, in pieces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.utils import log_info_on_rank0

logger = logging.getLogger(__name__)


class PiecewiseCudaGraphRunner:
    def __init__(self, model_runner: Any) -> None:
        self.model_runner, self.device = model_runner, model_runner.device
        self.capture_num_tokens = sorted(model_runner.server_args.piecewise_cuda_graph_tokens)
        log_info_on_rank0(logger, f"Capture cuda graph num tokens {self.capture_num_tokens}")
        self.capture()

    def capture(self) -> None:
        costs = phases.costs()
        self._fake_held = graphs.capture(
            self.capture_num_tokens,
            costs.prefill_graph_torch_bytes,
            costs.prefill_graph_bytes,
            "graph.capture",
            self._fake_one,
        )

    def _fake_one(self, num_tokens: int, forward: Callable[[], Any]) -> Any:
        self._fake_forward = forward
        return self.capture_one_batch_size(num_tokens)

    def capture_one_batch_size(self, num_tokens: int) -> Any:
        return self._fake_forward()
