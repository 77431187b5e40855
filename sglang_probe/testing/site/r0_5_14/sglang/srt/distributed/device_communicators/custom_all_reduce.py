"""The first custom all-reduce: two shared buffers from cudaMalloc and a tensor of pointers."""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Any

import torch
import torch.distributed as dist
from fakegpu import allreduce
from fakegpu.cuda import cuda
from sglang._fake import phases
from sglang.srt.distributed.device_communicators.custom_all_reduce_utils import can_use_custom_all_reduce_with_nvlink

logger = logging.getLogger(__name__)


class CustomAllreduce:
    """Disabled, and without a buffer, where the machine or the group does not suit it."""

    _SUPPORTED_WORLD_SIZES = [2, 4, 6, 8]  # noqa: RUF012
    _MAX_CAR_SIZE = 8192 * 1024

    def __init__(self, group: Any, device: Any, max_size: int = _MAX_CAR_SIZE) -> None:
        self.disabled = True
        full_nvlink = can_use_custom_all_reduce_with_nvlink(
            group=group,
            device=device,
            supported_world_size=CustomAllreduce._SUPPORTED_WORLD_SIZES,
            cls_name="CustomAllreduce",
        )
        if full_nvlink is None:
            return
        phases.enter("allreduce.buffers")
        self.group, self.device, self.max_size, self.full_nvlink = group, device, max_size, full_nvlink
        self.rank, self.world_size = dist.get_rank(group=group), dist.get_world_size(group=group)
        with cuda().label("custom_allreduce"):
            self.meta_ptrs = self.create_shared_buffer(allreduce.META_SIZE + max_size, group=group)
            self.buffer_ptrs = self.create_shared_buffer(max_size, group=group)
            self.rank_data = torch.empty(max_size, dtype=torch.uint8, device=device)
        self.disabled = False

    @staticmethod
    def create_shared_buffer(size_in_bytes: int, group: Any = None) -> list[int]:
        """Take memory from the driver and learn where the other ranks have theirs."""
        pointer = cuda().malloc(cuda().current, size_in_bytes)
        pointers: list[int] = [0] * dist.get_world_size(group=group)
        dist.all_gather_object(pointers, pointer, group=group)
        return pointers

    @staticmethod
    def free_shared_buffer(pointers: list[int], group: Any = None) -> None:
        own = ctypes.c_void_p(pointers[dist.get_rank(group=group)])
        cuda().free_raw(own.value or 0)

    def close(self) -> None:
        if not self.disabled:
            self.free_shared_buffer(self.meta_ptrs, self.group)
            self.free_shared_buffer(self.buffer_ptrs, self.group)
            self.disabled = True

    def __del__(self) -> None:
        self.close()


def dispatch_custom_allreduce(group: Any, device: Any) -> Any:
    """Return the class to use: the second one where the cards are fully linked and no variable says otherwise."""
    from sglang.srt.distributed.device_communicators.custom_all_reduce_v2 import (
        CustomAllReduceV2,
        can_use_custom_all_reduce_v2,
    )

    wanted = os.environ.get("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", "1") not in ("0", "false")
    if wanted and can_use_custom_all_reduce_v2(group=group, device=device):
        return CustomAllReduceV2
    return CustomAllreduce
