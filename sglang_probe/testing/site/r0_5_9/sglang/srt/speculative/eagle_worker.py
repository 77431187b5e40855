"""The draft of EAGLE: a worker of its own, built after the target is complete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.eagle_draft_cuda_graph_runner import EAGLEDraftCudaGraphRunner
from sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner import EAGLEDraftExtendCudaGraphRunner
from sglang.srt.utils import get_available_gpu_memory

logger = logging.getLogger(__name__)


class EAGLEWorker(TpModelWorker):
    def __init__(
        self,
        server_args: ServerArgs,
        gpu_id: int,
        tp_rank: int,
        dp_rank: int | None,
        moe_ep_rank: int,
        attn_cp_rank: int,
        moe_dp_rank: int,
        nccl_port: int,
        target_worker: TpModelWorker,
    ) -> None:
        server_args.context_length = target_worker.model_runner.model_config.context_len
        backup_disable_cuda_graph = server_args.disable_cuda_graph
        server_args.disable_cuda_graph = True
        pool, allocator = target_worker.get_memory_pool()
        super().__init__(
            server_args=server_args,
            gpu_id=gpu_id,
            tp_rank=tp_rank,
            pp_rank=0,
            dp_rank=dp_rank,
            moe_ep_rank=moe_ep_rank,
            attn_cp_rank=attn_cp_rank,
            moe_dp_rank=moe_dp_rank,
            nccl_port=nccl_port,
            is_draft_worker=True,
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator,
        )
        embed, head = target_worker.model_runner.model.get_embed_and_head()
        self.draft_model_runner.model.set_embed_and_head(embed, head)
        server_args.disable_cuda_graph = backup_disable_cuda_graph
        self.init_attention_backend()
        self.init_cuda_graphs()

    def init_attention_backend(self) -> None:
        self.draft_attn_backend = self.draft_extend_attn_backend = self.draft_model_runner.attn_backend

    def init_cuda_graphs(self) -> None:
        self.cuda_graph_runner: Any = None
        self.cuda_graph_runner_for_draft_extend: Any = None
        if self.server_args.disable_cuda_graph:
            return
        self.cuda_graph_runner = self._fake_capture("draft", EAGLEDraftCudaGraphRunner)
        self.cuda_graph_runner_for_draft_extend = self._fake_capture("draft extend", EAGLEDraftExtendCudaGraphRunner)

    def _fake_capture(self, name: str, kind: Callable[[EAGLEWorker], Any]) -> Any:
        tic = time.perf_counter()
        before_mem = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(
            f"Capture {name} cuda graph begin. This can take up to several minutes. avail mem={before_mem:.2f} GB"
        )
        runner = kind(self)
        after_mem = get_available_gpu_memory(self.device, self.gpu_id)
        logger.info(
            f"Capture {name} cuda graph end. Time elapsed: {time.perf_counter() - tic:.2f} s. "
            f"mem usage={(before_mem - after_mem):.2f} GB. avail mem={after_mem:.2f} GB."
        )
        return runner

    @property
    def draft_model_runner(self) -> Any:
        return self.model_runner
