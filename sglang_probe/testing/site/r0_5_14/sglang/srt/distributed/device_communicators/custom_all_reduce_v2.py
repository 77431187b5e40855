"""The second custom all-reduce: one piece of device memory that only C++ knows."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from fakegpu import allreduce
from fakegpu.cuda import cuda
from sglang._fake import phases
from sglang.srt.distributed.device_communicators.custom_all_reduce_utils import can_use_custom_all_reduce_with_nvlink

logger = logging.getLogger(__name__)


class CustomAllReduceV2:
    def __init__(
        self,
        group: Any,
        device: Any,
        max_pull_size: int | None = None,
        max_push_size: int | None = None,
        max_pull_blocks: int | None = None,
        max_push_blocks: int | None = None,
    ) -> None:
        self.disabled = True
        if not can_use_custom_all_reduce_v2(group=group, device=device):
            return
        phases.enter("allreduce.buffers")
        self.group = group
        self.rank, self.world_size = dist.get_rank(group=group), dist.get_world_size(group=group)
        self.max_pull_size = allreduce.V2_PULL_SIZE if max_pull_size is None else max_pull_size
        self.max_push_size = allreduce.V2_PUSH_SIZE[self.world_size] if max_push_size is None else max_push_size
        self.max_size = max(self.max_pull_size, self.max_push_size)
        with cuda().label("custom_allreduce"):
            size = allreduce.v2_bytes(self.world_size, self.max_pull_size, self.max_push_size)
            pointer = cuda().malloc(cuda().current, size)
        self.obj = SimpleNamespace(_fake_pointer=pointer, _pull_config=SimpleNamespace(num_blocks=allreduce.V2_BLOCKS))
        dist.all_gather_object([None] * self.world_size, pointer, group=group)
        self.disabled = False

    def close(self) -> None:
        """Leave the memory to the end of the process."""


def can_use_custom_all_reduce_v2(group: Any, device: Any) -> bool:
    full_nvlink = can_use_custom_all_reduce_with_nvlink(
        group=group,
        device=device,
        supported_world_size=list(allreduce.V2_PUSH_SIZE),
        cls_name="CustomAllReduceV2",
    )
    return full_nvlink is True
