"""torch's symmetric memory: one buffer per rank, outside the caching allocator."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from fakegpu.scenario import MIB
from sglang._fake import phases


class TorchSymmMemCommunicator:
    def __init__(self, group: Any, device: Any) -> None:
        self.disabled, self.group, self.device = False, group, device
        self.world_size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.max_size = (64 if self.world_size <= 4 else 128) * MIB
        phases.charge(self.max_size, "communicator")
