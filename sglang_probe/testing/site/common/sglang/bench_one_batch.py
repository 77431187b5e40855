"""Build the model runner without a server."""

from __future__ import annotations

from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import PortArgs, ServerArgs


def load_model(server_args: ServerArgs, port_args: PortArgs, gpu_id: int, tp_rank: int) -> tuple[Any, Any]:
    """Return the runner of one rank and no tokenizer."""
    runner: Any = ModelRunner(
        model_config=ModelConfig.from_server_args(server_args),
        mem_fraction_static=server_args.mem_fraction_static or 0.0,
        gpu_id=gpu_id,
        tp_rank=tp_rank,
        tp_size=server_args.tp_size,
        moe_ep_rank=0,
        moe_ep_size=server_args.ep_size,
        pp_rank=0,
        pp_size=1,
        nccl_port=port_args.nccl_port,
        server_args=server_args,
    )
    if hasattr(runner, "alloc_memory_pool"):
        runner.alloc_memory_pool()
        runner.init_attention_backends()
        runner.init_cuda_graphs()
    return runner, None
