"""Graphs of the draft's decode steps."""

from __future__ import annotations

from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.model_executor.runner import DecodeCudaGraphRunner


class EAGLEDraftCudaGraphRunner(DecodeCudaGraphRunner):
    def __init__(
        self, eagle_worker: Any, *, draft_attn_backend: Any = None, speculative_num_steps: int | None = None
    ) -> None:
        super().__init__(eagle_worker.draft_runner)

    def _fake_capture(self) -> list[Any]:
        return graphs.capture(self.capture_bs, phases.costs().draft_graph_torch_bytes, 0, "draft.graph.capture")
