"""What everything uses: free memory, logging, ending process trees."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import lru_cache
from typing import Any

import torch
from sglang._fake.processes import kill, kill_descendants

logger = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def is_cuda() -> bool:
    return torch.cuda.is_available()


def get_available_gpu_memory(
    device: Any, gpu_id: int, distributed: bool = False, empty_cache: bool = True, cpu_group: Any = None
) -> float:
    """Return the free GiB of the device, or the minimum over the ranks of `cpu_group`. Empties torch's cache."""
    assert gpu_id < torch.cuda.device_count()
    if torch.cuda.current_device() != gpu_id:
        print(
            f"WARNING: current device is not {gpu_id}, but {torch.cuda.current_device()}, ",
            "which may cause useless memory allocation for torch CUDA context.",
        )
    if empty_cache:
        torch.cuda.empty_cache()
    free_gpu_memory: float = torch.cuda.mem_get_info(gpu_id)[0]
    if distributed:
        tensor = torch.tensor(free_gpu_memory, dtype=torch.float32)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=cpu_group)
        free_gpu_memory = tensor.item()
    return free_gpu_memory / (1 << 30)


def set_random_seed(seed: int) -> None:
    """Seed nothing."""


def broadcast_pyobj(
    data: list[Any], rank: int, dist_group: Any = None, src: int = 0, force_cpu_device: bool = True
) -> list[Any]:
    """Return the data of rank `src`."""
    gathered: list[Any] = [None] * torch.distributed.get_world_size(dist_group)
    torch.distributed.all_gather_object(gathered, data, group=dist_group)
    return list(gathered[torch.distributed.get_process_group_ranks(dist_group).index(src)])


def kill_process_tree(
    parent_pid: int | None, include_parent: bool = True, skip_pid: int | None = None, wait_timeout: float | None = None
) -> None:
    """SIGKILL a process and everything it started."""
    logger.info(
        f"kill_process_tree called: parent_pid={parent_pid}, include_parent={include_parent}, pid={os.getpid()}"
    )
    if parent_pid is None:
        parent_pid, include_parent = os.getpid(), False
    kill_descendants(parent_pid, skip_pid)
    if include_parent:
        kill(parent_pid, signal.SIGKILL)
        if parent_pid == os.getpid():
            sys.exit(0)


def monkey_patch_p2p_access_check() -> None:
    """Take peer access for granted and let the custom all-reduce leave its buffers to the end of the process."""
    import sglang.srt.distributed.device_communicators.custom_all_reduce_utils as target
    from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce

    setattr(target, "gpu_p2p_access_check", lambda *arg, **kwargs: True)  # noqa: B010
    setattr(CustomAllreduce, "__del__", lambda *args, **kwargs: None)  # noqa: B010


def configure_logger(server_args: Any, prefix: str = "") -> None:
    """Log to stderr in SGLang's format, with the rank in the prefix."""
    logging.basicConfig(
        level=getattr(logging, server_args.log_level.upper()),
        format=f"[%(asctime)s{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )


def log_info_on_rank0(logger: logging.Logger, msg: str) -> None:
    from sglang.srt.distributed.parallel_state import get_tp_group

    if get_tp_group().rank_in_group == 0:
        logger.info(msg)


def kill_itself_when_parent_died() -> None:
    """Nothing to do: whoever waits here looks for its parent himself."""
