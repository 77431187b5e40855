"""NCCL through its C library: what its communicator costs is NCCL's own."""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed as dist
from sglang._fake import phases

logger = logging.getLogger(__name__)


class PyNcclCommunicator:
    def __init__(self, group: Any, device: Any, library_path: str | None = None) -> None:
        self.rank, self.world_size, self.group = dist.get_rank(group), dist.get_world_size(group), group
        if self.world_size == 1:
            self.available, self.disabled = False, True
            return
        phases.enter("dist.communicator")
        self.available, self.disabled = True, False
        self.nccl_version = ".".join(str(part) for part in torch.cuda.nccl.version())
        if self.rank == 0:
            logger.info("sglang is using nccl==%s", self.nccl_version)
        self.device = device
        with torch.cuda.device(device):
            dist.broadcast(torch.tensor([self.rank]), src=dist.get_process_group_ranks(group)[0], group=group)
            phases.charge(phases.costs().communicator_bytes, "communicator")
            torch.zeros(1, device=device)
        self.disabled = True
