"""The launcher: start everything, then answer HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang._fake import serving
from sglang._fake.release import start_engine, watches_children
from sglang._fake.tokens import generate
from sglang.srt.entrypoints.engine import init_tokenizer_manager, run_detokenizer_process, run_scheduler_process
from sglang.srt.server_args import ServerArgs


def _execute_server_warmup(server_args: ServerArgs) -> bool:
    """Warm nothing up."""
    return True


def launch_server(
    server_args: ServerArgs,
    init_tokenizer_manager_func: Callable[..., Any] = init_tokenizer_manager,
    run_scheduler_process_func: Callable[..., None] = run_scheduler_process,
    run_detokenizer_process_func: Callable[..., None] = run_detokenizer_process,
    execute_warmup_func: Callable[..., Any] = _execute_server_warmup,
    launch_callback: Callable[[], None] | None = None,
) -> None:
    """Start the processes and serve until told to stop."""
    processes = start_engine(
        server_args=server_args,
        init_tokenizer_manager_func=init_tokenizer_manager_func,
        run_scheduler_process_func=run_scheduler_process_func,
        run_detokenizer_process_func=run_detokenizer_process_func,
    )
    if launch_callback is not None:
        launch_callback()
    serving.serve(server_args, processes, generate, watches_children)
