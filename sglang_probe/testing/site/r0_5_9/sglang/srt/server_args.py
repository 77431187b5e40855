"""The arguments of a server: SGLang's names and defaults for those that decide memory."""

from __future__ import annotations

import argparse
import dataclasses
import socket
import tempfile
import uuid
from typing import Any, Literal

from sglang._fake import args as _fake_args


@dataclasses.dataclass
class ServerArgs:
    """Resolved in `__post_init__`, as in SGLang."""

    model_path: str
    tokenizer_path: str | None = None
    tokenizer_mode: str = "auto"
    tokenizer_worker_num: int = 1
    skip_tokenizer_init: bool = False
    load_format: str = "auto"
    trust_remote_code: bool = False
    context_length: int | None = None
    revision: str | None = None
    json_model_override_args: str = "{}"
    host: str = "127.0.0.1"
    port: int = 30000
    skip_server_warmup: bool = False
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_queued_requests: int | None = None
    max_total_tokens: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    schedule_policy: str = "fcfs"
    page_size: int | None = None
    swa_full_tokens_ratio: float = 0.8
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    device: str | None = None
    base_gpu_id: int = 0
    gpu_id_step: int = 1
    random_seed: int | None = None
    nccl_port: int | None = None
    dist_timeout: int | None = None
    dist_init_addr: str | None = None
    nnodes: int = 1
    node_rank: int = 0
    tp_size: int = 1
    pp_size: int = 1
    pp_max_micro_batch_size: int | None = None
    dp_size: int = 1
    attn_cp_size: int = 1
    moe_dp_size: int = 1
    ep_size: int = 1
    enable_dp_attention: bool = False
    log_level: str = "info"
    enable_metrics: bool = False
    api_key: str | None = None
    admin_api_key: str | None = None
    served_model_name: str | None = None
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    sampling_backend: str | None = None
    grammar_backend: str | None = None
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_draft_model_revision: str | None = None
    speculative_draft_load_format: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_draft_attention_backend: str | None = None
    max_mamba_cache_size: int | None = None
    mamba_full_memory_ratio: float = 0.9
    cpu_offload_gb: int = 0
    cuda_graph_max_bs: int | None = None
    cuda_graph_bs: list[int] | None = None
    disable_cuda_graph: bool = False
    enable_symm_mem: bool = False
    disable_custom_all_reduce: bool = False
    enable_mscclpp: bool = False
    enable_torch_symm_mem: bool = False
    enable_torch_compile: bool = False
    enable_piecewise_cuda_graph: bool = False
    piecewise_cuda_graph_tokens: list[int] | None = None
    enable_memory_saver: bool = False
    enable_p2p_check: bool = False
    disaggregation_mode: Literal["null", "prefill", "decode"] = "null"
    elastic_ep_backend: Literal[None, "mooncake"] = None

    def __post_init__(self) -> None:
        _fake_args.resolve(self)
        sizes = self.cuda_graph_bs or [1, 2, 4, 8, 12, 16, 24, 32]
        self.cuda_graph_bs = [size for size in sizes if size <= (self.cuda_graph_max_bs or max(sizes))]
        if self.piecewise_cuda_graph_tokens is None:
            self.piecewise_cuda_graph_tokens = [256, 512, 1024, 2048]
        if self.speculative_algorithm is not None:
            self.disable_overlap_schedule = True

    def get_attention_backends(self) -> tuple[str | None, str | None]:
        """Return the prefill and the decode backend."""
        return (
            self.prefill_attention_backend or self.attention_backend,
            self.decode_attention_backend or self.attention_backend,
        )

    def check_server_args(self) -> None:
        """Check what SGLang checks of the sizes used here."""
        assert self.tp_size % self.ep_size == 0, "tp_size must be divisible by ep_size"

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Give the parser every flag."""
        _fake_args.add_arguments(parser, ServerArgs)

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> ServerArgs:
        return cls(**_fake_args.values_of(args, cls))


_global_server_args: ServerArgs | None = None


def set_global_server_args_for_scheduler(server_args: ServerArgs) -> None:
    global _global_server_args
    _global_server_args = server_args


def get_global_server_args() -> ServerArgs:
    """Return this process's arguments. Raises ValueError before they were set."""
    if _global_server_args is None:
        raise ValueError("Global server args is not set yet!")
    return _global_server_args


def prepare_server_args(argv: list[str]) -> ServerArgs:
    """Return the arguments of a command line; exits with 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="sglang.launch_server")
    ServerArgs.add_cli_args(parser)
    return ServerArgs.from_cli_args(parser.parse_args(argv))


@dataclasses.dataclass
class PortArgs:
    """Where the processes of one server meet."""

    tokenizer_ipc_name: str
    scheduler_input_ipc_name: str
    detokenizer_ipc_name: str
    nccl_port: int
    rpc_ipc_name: str
    metrics_ipc_name: str
    tokenizer_worker_ipc_name: str | None

    @staticmethod
    def init_new(server_args: Any, dp_rank: int | None = None, worker_ports: list[int] | None = None) -> PortArgs:
        """Return names and a port that nobody uses yet."""
        base = f"ipc://{tempfile.gettempdir()}/fake-sglang-{uuid.uuid4().hex}"
        port = server_args.nccl_port or _fake_free_port()
        return PortArgs(
            tokenizer_ipc_name=f"{base}-tokenizer",
            scheduler_input_ipc_name=f"{base}-scheduler",
            detokenizer_ipc_name=f"{base}-detokenizer",
            nccl_port=port,
            rpc_ipc_name=f"{base}-rpc",
            metrics_ipc_name=f"{base}-metrics",
            tokenizer_worker_ipc_name=None,
        )


def _fake_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
