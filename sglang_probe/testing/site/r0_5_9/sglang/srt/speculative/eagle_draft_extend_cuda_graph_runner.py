"""Graphs of the draft's extension."""

from __future__ import annotations

from typing import Any

from sglang._fake import graphs, phases
from sglang.srt.model_executor.cuda_graph_runner import get_batch_sizes_to_capture


class EAGLEDraftExtendCudaGraphRunner:
    def __init__(self, eagle_worker: Any) -> None:
        self.eagle_worker, self.model_runner = eagle_worker, eagle_worker.model_runner
        self.capture_bs, self.compile_bs = get_batch_sizes_to_capture(self.model_runner)
        self.capture()

    def capture(self) -> None:
        cost = phases.costs().draft_graph_torch_bytes
        self._fake_held = graphs.capture(self.capture_bs, cost, 0, "draft.graph.capture")
