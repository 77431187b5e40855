"""The draft of EAGLE: its weights come with the target's, its pools and graphs after them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.model_executor.runner import get_batch_sizes_to_capture
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker, EagleDraftWorkerBase
from sglang.srt.speculative.eagle_draft_cuda_graph_runner import EAGLEDraftCudaGraphRunner
from sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner import EAGLEDraftExtendCudaGraphRunner
from sglang.srt.utils.common import get_available_gpu_memory, log_info_on_rank0

logger = logging.getLogger(__name__)


class EagleDraftWorker(EagleDraftWorkerBase):
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
        self.server_args, self.gpu_id, self.target_worker = server_args, gpu_id, target_worker
        self.device, self.topk = server_args.device, server_args.speculative_eagle_topk
        self.draft_worker = TpModelWorker(
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
        )
        self.draft_runner = self.draft_worker.model_runner

    def alloc_memory_pool(  # type: ignore[override]
        self, memory_pool_config: Any = None, req_to_token_pool: Any = None, token_to_kv_pool_allocator: Any = None
    ) -> None:
        self.draft_worker.alloc_memory_pool(
            memory_pool_config=memory_pool_config,
            req_to_token_pool=req_to_token_pool,
            token_to_kv_pool_allocator=token_to_kv_pool_allocator,
        )
        embed, head = self.target_worker.model_runner.model.get_embed_and_head()
        self.draft_runner.model.set_embed_and_head(embed, head)

    def init_attention_backends(self) -> None:
        self.draft_worker.init_attention_backends()
        self.init_attention_backend()

    def init_cuda_graphs(self) -> None:
        self.draft_worker.init_cuda_graphs(capture_decode_cuda_graph=False)
        if check_cuda_graph_backend(Phase.PREFILL, Backend.BREAKABLE):
            self.draft_runner.init_prefill_cuda_graph(force_for_draft_worker=True)
        self._capture_cuda_graphs()

    def init_attention_backend(self) -> None:
        self.draft_attn_backend = self.draft_extend_attn_backend = self.draft_runner.attn_backend

    def _capture_cuda_graphs(self) -> None:
        self.cuda_graph_runner: Any = None
        self.cuda_graph_runner_for_draft_extend: Any = None
        if check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
            return
        self.cuda_graph_runner = self._fake_capture("draft decode", self.topk or 1, EAGLEDraftCudaGraphRunner)
        tokens = self.server_args.speculative_num_draft_tokens or 1
        self.cuda_graph_runner_for_draft_extend = self._fake_capture(
            "draft extend", tokens, EAGLEDraftExtendCudaGraphRunner
        )

    def _fake_capture(self, name: str, tokens: int, kind: Callable[[EagleDraftWorker], Any]) -> Any:
        tic = time.perf_counter()
        before_mem = get_available_gpu_memory(self.device, self.gpu_id)
        capture_bs, _ = get_batch_sizes_to_capture(self.draft_runner)
        log_info_on_rank0(
            logger,
            f"Capture {name} CUDA graph begin. backend={Backend.FULL}, num_tokens_per_bs={tokens}, "
            f"bs={capture_bs}, avail mem={before_mem:.2f} GB",
        )
        runner = kind(self)
        after_mem = get_available_gpu_memory(self.device, self.gpu_id)
        log_info_on_rank0(
            logger,
            f"Capture {name} CUDA graph end. elapsed={time.perf_counter() - tic:.2f} s, "
            f"mem usage={(before_mem - after_mem):.2f} GB, avail mem={after_mem:.2f} GB.",
        )
        return runner


class EAGLEWorkerV2(BaseSpecWorker):
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
        self._target_worker = target_worker
        self._draft_worker = EagleDraftWorker(
            server_args,
            gpu_id,
            tp_rank,
            dp_rank,
            moe_ep_rank,
            attn_cp_rank,
            moe_dp_rank,
            nccl_port,
            target_worker,
        )

    def alloc_memory_pool(  # type: ignore[override]
        self, memory_pool_config: Any = None, req_to_token_pool: Any = None, token_to_kv_pool_allocator: Any = None
    ) -> None:
        self._draft_worker.alloc_memory_pool(memory_pool_config, req_to_token_pool, token_to_kv_pool_allocator)

    def init_attention_backends(self) -> None:
        self._draft_worker.init_attention_backends()

    def init_cuda_graphs(self) -> None:
        self._draft_worker.init_cuda_graphs()
