"""The worker of one tensor-parallel rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed.parallel_state import get_pp_group, get_world_group
from sglang.srt.model_executor.pool_configurator import MemoryPoolConfig
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.common import broadcast_pyobj, set_random_seed


class BaseTpWorker(ABC):
    @property
    @abstractmethod
    def model_runner(self) -> Any: ...

    def get_memory_pool(self) -> tuple[Any, Any]:
        return self.model_runner.req_to_token_pool, self.model_runner.token_to_kv_pool_allocator


class TpModelWorker(BaseTpWorker):
    def __init__(
        self,
        server_args: ServerArgs,
        gpu_id: int,
        tp_rank: int,
        moe_ep_rank: int,
        pp_rank: int,
        attn_cp_rank: int,
        moe_dp_rank: int,
        dp_rank: int | None,
        nccl_port: int,
        is_draft_worker: bool = False,
        req_to_token_pool: Any = None,
        token_to_kv_pool_allocator: Any = None,
        memory_pool_config: MemoryPoolConfig | None = None,
        is_multi_layer_eagle: bool = False,
    ) -> None:
        self.server_args, self.gpu_id, self.nccl_port = server_args, gpu_id, nccl_port
        self.tp_size, self.ep_size, self.pp_size = server_args.tp_size, server_args.ep_size, server_args.pp_size
        self.tp_rank, self.moe_ep_rank, self.pp_rank, self.dp_rank = tp_rank, moe_ep_rank, pp_rank, dp_rank
        self.attn_cp_rank, self.moe_dp_rank, self.is_draft_worker = attn_cp_rank, moe_dp_rank, is_draft_worker
        self.req_to_token_pool, self.token_to_kv_pool_allocator = req_to_token_pool, token_to_kv_pool_allocator
        self.memory_pool_config = memory_pool_config
        self._init_model_config()
        self._init_model_runner()
        self.device = self.model_runner.device
        self.pp_group, self.world_group = get_pp_group(), get_world_group()
        self.random_seed = broadcast_pyobj(
            [server_args.random_seed], self.world_group.rank, self.world_group.cpu_group, src=0
        )[0]
        set_random_seed(self.random_seed)

    def alloc_memory_pool(
        self,
        memory_pool_config: MemoryPoolConfig | None = None,
        req_to_token_pool: Any = None,
        token_to_kv_pool_allocator: Any = None,
    ) -> None:
        if req_to_token_pool is not None:
            self.model_runner.req_to_token_pool = req_to_token_pool
        if token_to_kv_pool_allocator is not None:
            self.model_runner.token_to_kv_pool_allocator = token_to_kv_pool_allocator
        self.model_runner.alloc_memory_pool(memory_pool_config)
        assert self.model_runner.max_running_requests > 0, "max_running_request is zero"

    def init_attention_backends(self) -> None:
        self.model_runner.init_attention_backends()

    def init_cuda_graphs(self, capture_decode_cuda_graph: bool = True) -> None:
        self.model_runner.init_cuda_graphs(capture_decode_cuda_graph=capture_decode_cuda_graph)

    def _init_model_config(self) -> None:
        self.model_config = ModelConfig.from_server_args(self.server_args, is_draft_model=self.is_draft_worker)

    def _init_model_runner(self) -> None:
        from sglang.srt.model_executor.model_runner import ModelRunner

        self._model_runner = ModelRunner(
            model_config=self.model_config,
            mem_fraction_static=self.server_args.mem_fraction_static or 0.0,
            gpu_id=self.gpu_id,
            tp_rank=self.tp_rank,
            tp_size=self.tp_size,
            moe_ep_rank=self.moe_ep_rank,
            moe_ep_size=self.ep_size,
            pp_rank=self.pp_rank,
            pp_size=self.pp_size,
            nccl_port=self.nccl_port,
            dp_rank=self.dp_rank,
            server_args=self.server_args,
            attn_cp_rank=self.attn_cp_rank,
            moe_dp_rank=self.moe_dp_rank,
            is_draft_worker=self.is_draft_worker,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            memory_pool_config=self.memory_pool_config,
        )

    @property
    def model_runner(self) -> Any:
        return self._model_runner

    def get_worker_info(self) -> tuple[Any, ...]:
        runner = self.model_runner
        max_req_len = min(self.model_config.context_len, runner.max_token_pool_size) - 1
        return (
            runner.max_total_num_tokens,
            self.server_args.max_prefill_tokens,
            runner.max_running_requests,
            self.server_args.max_queued_requests,
            max_req_len,
            max_req_len - 5,
            self.random_seed,
            self.device,
            runner.forward_stream,
            runner.req_to_token_pool.size,
            runner.req_to_token_pool.max_context_len,
            runner.token_to_kv_pool.size,
        )
