"""Graphs of the decode phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.model_executor.runner.base_cuda_graph_runner import BaseCudaGraphRunner, get_batch_sizes_to_capture


class DecodeCudaGraphRunner(BaseCudaGraphRunner):
    def __init__(
        self,
        model_runner: Any,
        *,
        attn_backend: Any = None,
        speculative_num_steps: int | None = None,
        speculative_num_draft_tokens: int | None = None,
    ) -> None:
        super().__init__(model_runner)
        self.capture_bs, self.compile_bs = get_batch_sizes_to_capture(model_runner)
        self.max_bs = max(self.capture_bs)
        self.capture()

    def capture(self) -> None:
        self._fake_held = self._fake_capture()

    def _fake_capture(self) -> list[Any]:
        costs = phases.costs()
        return graphs.capture(
            self.capture_bs,
            costs.decode_graph_torch_bytes,
            costs.decode_graph_bytes,
            "graph.capture",
            self.capture_one_shape,
        )

    def capture_one_shape(
        self, size: int, forward: Callable[[], Any], stream_idx: int | None = None, variant_label: str | None = None
    ) -> Any:
        return forward()
