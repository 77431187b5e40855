"""The process that starts the replicas of a data-parallel server and waits for them."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from sglang._fake import launch, phases
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.utils.common import configure_logger, kill_itself_when_parent_died, logger


class DataParallelController:
    """Starts every replica, then lets requests through."""

    def __init__(
        self, server_args: ServerArgs, port_args: PortArgs, run_scheduler_process_func: Callable[..., None]
    ) -> None:
        self.server_args, self.port_args = server_args, port_args
        self.run_scheduler_process_func = run_scheduler_process_func
        if server_args.enable_dp_attention:
            self.launch_dp_attention_schedulers(server_args, port_args)
        else:
            self.launch_dp_schedulers(server_args, port_args)

    def launch_dp_schedulers(self, server_args: ServerArgs, port_args: PortArgs) -> None:
        """Start the replicas on cards of their own."""
        started = [self._fake_start(server_args, dp_rank) for dp_rank in range(server_args.dp_size)]
        self._fake_wait(started)

    def launch_dp_attention_schedulers(self, server_args: ServerArgs, port_args: PortArgs) -> None:
        """Start one set of ranks whose attention layers are replicas."""
        self._fake_wait([launch.start_ranks(server_args, port_args, self.run_scheduler_process_func, None, 0)])

    def event_loop(self) -> None:
        phases.wait_while_parent_lives()

    def _fake_start(self, server_args: ServerArgs, dp_rank: int) -> launch.Ranks:
        per_replica = server_args.tp_size * server_args.pp_size * server_args.gpu_id_step
        base = server_args.base_gpu_id + dp_rank * per_replica
        ports = PortArgs.init_new(server_args)
        return launch.start_ranks(server_args, ports, self.run_scheduler_process_func, dp_rank, base)

    def _fake_wait(self, started: list[launch.Ranks]) -> None:
        self.scheduler_procs = [process for processes, _ in started for process in processes]
        infos = [info for processes, readers in started for info in launch.wait_until_ready(processes, readers)]
        self.max_total_num_tokens = infos[0]["max_total_num_tokens"]
        self.max_req_input_len = infos[0]["max_req_input_len"]


def run_data_parallel_controller_process(
    server_args: ServerArgs,
    port_args: PortArgs,
    pipe_writer: Any,
    run_scheduler_process_func: Callable[..., None] = run_scheduler_process,
) -> None:
    """Be the controller until the launcher is gone."""
    kill_itself_when_parent_died()
    configure_logger(server_args)
    parent = os.getppid()
    launch.prepare(server_args)
    try:
        controller = DataParallelController(server_args, port_args, run_scheduler_process_func)
        pipe_writer.send(
            {
                "status": "ready",
                "max_total_num_tokens": controller.max_total_num_tokens,
                "max_req_input_len": controller.max_req_input_len,
            }
        )
        controller.event_loop()
    except Exception:
        logger.error(f"DataParallelController hit an exception: {traceback.format_exc()}")
        os.kill(parent, signal.SIGQUIT)
