"""Graphs of the prefill phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.model_executor.runner.base_cuda_graph_runner import BaseCudaGraphRunner


class PrefillCudaGraphRunner(BaseCudaGraphRunner):
    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        self.capture_num_tokens = sorted(model_runner.server_args.cuda_graph_config.prefill.bs)
        self.max_num_tokens = max(self.capture_num_tokens)
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

    def _fake_one(self, size: int, forward: Callable[[], Any]) -> Any:
        self._fake_forward = forward
        return self.capture_one_shape(size)

    def capture_one_shape(self, size: int) -> Any:
        return self._fake_forward()
