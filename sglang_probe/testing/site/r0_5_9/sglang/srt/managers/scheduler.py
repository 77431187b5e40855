"""The process of one rank: build the worker, say that it is ready, serve."""

from __future__ import annotations

import logging
import os
import signal
import traceback
from typing import Any

from sglang._fake import phases
from sglang._fake.mixins import (
    SchedulerDisaggregationDecodeMixin,
    SchedulerDisaggregationPrefillMixin,
    SchedulerDllmMixin,
    SchedulerDPAttnMixin,
    SchedulerMetricsMixin,
    SchedulerMultiplexMixin,
    SchedulerOutputProcessorMixin,
    SchedulerPPMixin,
    SchedulerProfilerMixin,
    SchedulerRuntimeCheckerMixin,
    SchedulerUpdateWeightsMixin,
)
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.server_args import PortArgs, ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils import configure_logger, get_available_gpu_memory, kill_itself_when_parent_died

logger = logging.getLogger(__name__)


class Scheduler(
    SchedulerOutputProcessorMixin,
    SchedulerUpdateWeightsMixin,
    SchedulerProfilerMixin,
    SchedulerMetricsMixin,
    SchedulerDisaggregationDecodeMixin,
    SchedulerDisaggregationPrefillMixin,
    SchedulerMultiplexMixin,
    SchedulerRuntimeCheckerMixin,
    SchedulerPPMixin,
    SchedulerDPAttnMixin,
    SchedulerDllmMixin,
):
    def __init__(
        self,
        server_args: ServerArgs,
        port_args: PortArgs,
        gpu_id: int,
        tp_rank: int,
        moe_ep_rank: int,
        pp_rank: int,
        attn_cp_rank: int,
        moe_dp_rank: int,
        dp_rank: int | None,
    ) -> None:
        replica = 0 if server_args.enable_dp_attention else dp_rank or 0
        phases.become((replica * server_args.pp_size + pp_rank) * server_args.tp_size + tp_rank)
        phases.enter("scheduler.init")
        self.server_args, self.nccl_port = server_args, port_args.nccl_port
        self.spec_algorithm = SpeculativeAlgorithm.from_string(server_args.speculative_algorithm)
        self.page_size = server_args.page_size
        self._fake_ranks: dict[str, Any] = {
            "gpu_id": gpu_id,
            "tp_rank": tp_rank,
            "moe_ep_rank": moe_ep_rank,
            "attn_cp_rank": attn_cp_rank,
            "moe_dp_rank": moe_dp_rank,
            "dp_rank": dp_rank,
        }
        self._fake_pp_rank = pp_rank
        self.init_model_config()
        self.init_model_worker()
        phases.enter("ready")

    def init_model_config(self) -> None:
        self.model_config = ModelConfig.from_server_args(self.server_args)

    def init_tp_model_worker(self) -> None:
        from sglang.srt.managers.tp_worker import TpModelWorker

        self.tp_worker = TpModelWorker(
            server_args=self.server_args, nccl_port=self.nccl_port, pp_rank=self._fake_pp_rank, **self._fake_ranks
        )

    def maybe_init_draft_worker(self) -> None:
        self.draft_worker: Any = None
        if not self.spec_algorithm.is_none():
            kind = self.spec_algorithm.create_worker(self.server_args)
            self.draft_worker = kind(
                server_args=self.server_args,
                nccl_port=self.nccl_port,
                target_worker=self.tp_worker,
                **self._fake_ranks,
            )

    def init_model_worker(self) -> None:
        self.init_tp_model_worker()
        self.maybe_init_draft_worker()
        info = self.tp_worker.get_worker_info()
        self.max_total_num_tokens, self.max_prefill_tokens, self.max_running_requests = info[:3]
        self.max_req_len, self.max_req_input_len, self.device = info[4], info[5], info[7]
        if self._fake_ranks["tp_rank"] == 0:
            avail_mem = get_available_gpu_memory(self.device, self._fake_ranks["gpu_id"] or 0, empty_cache=False)
            logger.info(
                f"max_total_num_tokens={self.max_total_num_tokens}, "
                f"chunked_prefill_size={self.server_args.chunked_prefill_size}, "
                f"max_prefill_tokens={self.max_prefill_tokens}, "
                f"max_running_requests={self.max_running_requests}, "
                f"context_len={self.model_config.context_len}, "
                f"available_gpu_mem={avail_mem:.2f} GB"
            )

    def _fake_event_loop(self) -> None:
        phases.wait_while_parent_lives()


def run_scheduler_process(
    server_args: ServerArgs,
    port_args: PortArgs,
    gpu_id: int,
    tp_rank: int,
    attn_cp_rank: int,
    moe_dp_rank: int,
    moe_ep_rank: int,
    pp_rank: int,
    dp_rank: int | None,
    pipe_writer: Any,
) -> None:
    """Be one rank; tell the launcher with SIGQUIT where that fails."""
    if dp_rank is None and "SGLANG_DP_RANK" in os.environ:
        dp_rank = int(os.environ["SGLANG_DP_RANK"])
    parts = [
        ("DP", dp_rank, dp_rank is not None),
        ("PP", pp_rank, server_args.pp_size > 1),
        ("ATTN_CP", attn_cp_rank, server_args.attn_cp_size > 1),
        ("MOE_DP", moe_dp_rank, server_args.moe_dp_size > 1),
        ("TP", tp_rank, server_args.tp_size > 1),
        ("EP", moe_ep_rank, server_args.ep_size > 1),
    ]
    kill_itself_when_parent_died()
    parent = os.getppid()
    configure_logger(server_args, prefix="".join(f" {name}{rank}" for name, rank, shown in parts if shown))
    try:
        scheduler = Scheduler(
            server_args,
            port_args,
            gpu_id,
            tp_rank,
            moe_ep_rank,
            pp_rank,
            attn_cp_rank,
            moe_dp_rank,
            dp_rank,
        )
        pipe_writer.send(
            {
                "status": "ready",
                "max_total_num_tokens": scheduler.max_total_num_tokens,
                "max_req_input_len": scheduler.max_req_input_len,
            }
        )
        scheduler._fake_event_loop()
    except Exception:
        logger.error(f"Scheduler hit an exception: {traceback.format_exc()}")
        phases.enter("failed")
        os.kill(parent, signal.SIGQUIT)
