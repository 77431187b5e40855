"""Starts the processes of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang._fake import launch
from sglang.srt.managers.data_parallel_controller import run_data_parallel_controller_process
from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils.common import configure_logger

__all__ = ["init_tokenizer_manager", "run_detokenizer_process", "run_scheduler_process"]


def init_tokenizer_manager(
    server_args: ServerArgs, port_args: PortArgs, TokenizerManagerClass: Any = None
) -> TokenizerManager:
    chosen = TokenizerManagerClass or TokenizerManager
    manager: TokenizerManager = chosen(server_args, port_args)
    return manager


def _launch_subprocesses(
    server_args: ServerArgs,
    init_tokenizer_manager_func: Callable[..., Any],
    run_scheduler_process_func: Callable[..., None],
    run_detokenizer_process_func: Callable[..., None],
    port_args: PortArgs | None = None,
) -> tuple[Any, ...]:
    configure_logger(server_args)
    _set_envs_and_config(server_args)
    server_args.check_server_args()
    return launch.start_server(
        server_args,
        init_tokenizer_manager_func,
        run_scheduler_process_func,
        run_detokenizer_process_func,
        port_args,
        run_data_parallel_controller_process,
    )


def _set_envs_and_config(server_args: ServerArgs) -> None:
    launch.prepare(server_args)
