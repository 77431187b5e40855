"""Starting the processes of a server: one scheduler per rank, the detokenizer, and the launcher that waits for them."""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils import kill_process_tree

logger = logging.getLogger(__name__)

Ranks = tuple[list[BaseProcess], list[Connection]]


def prepare(server_args: ServerArgs) -> None:
    """Set what the launcher sets before it starts anything: variables, the handler of a child's failure, spawn."""
    os.environ.setdefault("NCCL_CUMEM_ENABLE", str(int(server_args.enable_symm_mem)))
    os.environ.setdefault("NCCL_NVLS_ENABLE", str(int(server_args.enable_symm_mem)))
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    os.environ["CUDA_MODULE_LOADING"] = "AUTO"

    def on_sigquit(signum: int, frame: FrameType | None) -> None:
        logger.error("Received sigquit from a child process. It usually means the child failed.")
        kill_process_tree(os.getpid())

    signal.signal(signal.SIGQUIT, on_sigquit)
    mp.set_start_method("spawn", force=True)


def start_ranks(
    server_args: ServerArgs, port_args: PortArgs, target: Callable[..., None], dp_rank: int | None, base_gpu_id: int
) -> Ranks:
    """Start the schedulers of one replica, each with its end of a pipe on which it says that it is ready."""
    processes: list[BaseProcess] = []
    readers: list[Connection] = []
    for pp_rank in range(server_args.pp_size):
        for tp_rank in range(server_args.tp_size):
            reader, writer = mp.Pipe(duplex=False)
            gpu_id = base_gpu_id + pp_rank * server_args.tp_size + tp_rank * server_args.gpu_id_step
            ranks = _ranks_within(server_args, tp_rank)
            own_dp_rank = ranks.pop("dp_rank") if server_args.enable_dp_attention else dp_rank
            process = mp.Process(
                target=target,
                args=(
                    server_args,
                    port_args,
                    gpu_id,
                    tp_rank,
                    ranks["attn_cp_rank"],
                    ranks["moe_dp_rank"],
                    ranks["moe_ep_rank"],
                    pp_rank,
                    own_dp_rank,
                    writer,
                ),
            )
            process.start()
            processes.append(process)
            readers.append(reader)
    return processes, readers


def _ranks_within(server_args: ServerArgs, tp_rank: int) -> dict[str, int]:
    """Return a tensor-parallel rank's place in the other dimensions; the outermost comes first."""
    attn_dp = server_args.dp_size if server_args.enable_dp_attention else 1
    attn_tp = server_args.tp_size // attn_dp // server_args.attn_cp_size
    moe_group = server_args.tp_size // server_args.moe_dp_size
    return {
        "dp_rank": tp_rank // (attn_tp * server_args.attn_cp_size),
        "attn_cp_rank": (tp_rank // attn_tp) % server_args.attn_cp_size,
        "moe_dp_rank": tp_rank // moe_group,
        "moe_ep_rank": tp_rank % moe_group // (moe_group // server_args.ep_size),
    }


def wait_until_ready(processes: list[BaseProcess], readers: list[Connection]) -> list[dict[str, Any]]:
    """Return what each scheduler says when it is ready. Raises EOFError where one died without a word."""
    infos = []
    for number, reader in enumerate(readers):
        try:
            info = reader.recv()
        except EOFError:
            logger.error(f"Rank {number} scheduler is dead. Please check if there are relevant logs.")
            processes[number].join()
            logger.error(f"Exit code: {processes[number].exitcode}")
            raise
        infos.append(info)
    return infos


def start_server(
    server_args: ServerArgs,
    init_tokenizer_manager_func: Callable[..., Any],
    run_scheduler_process_func: Callable[..., None],
    run_detokenizer_process_func: Callable[..., None],
    port_args: PortArgs | None,
    controller: Callable[..., None],
) -> tuple[Any, list[dict[str, Any]], PortArgs, list[BaseProcess]]:
    """Start everything and wait until every rank is ready; `controller` runs where there are replicas."""
    port_args = port_args or PortArgs.init_new(server_args)
    logger.info(f"{server_args=}")
    if server_args.dp_size == 1:
        base = server_args.base_gpu_id
        processes, readers = start_ranks(server_args, port_args, run_scheduler_process_func, None, base)
    else:
        processes, readers = _start_controller(server_args, port_args, run_scheduler_process_func, controller)
    detokenizer = mp.Process(target=run_detokenizer_process_func, args=(server_args, port_args))
    detokenizer.start()
    tokenizer_manager = init_tokenizer_manager_func(server_args, port_args)
    infos = wait_until_ready(processes, readers)
    return tokenizer_manager, infos, port_args, [*processes, detokenizer]


def _start_controller(
    server_args: ServerArgs, port_args: PortArgs, target: Callable[..., None], controller: Callable[..., None]
) -> Ranks:
    reader, writer = mp.Pipe(duplex=False)
    named = {
        "server_args": server_args,
        "port_args": port_args,
        "pipe_writer": writer,
        "run_scheduler_process_func": target,
    }
    process = mp.Process(target=controller, kwargs=named)
    process.start()
    return [process], [reader]
