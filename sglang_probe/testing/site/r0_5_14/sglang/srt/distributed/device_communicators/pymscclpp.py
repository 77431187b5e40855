"""MSCCL++: a small buffer for small messages."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from fakegpu.scenario import MIB
from sglang._fake import phases


class PyMscclppCommunicator:
    def __init__(self, group: Any, device: Any) -> None:
        self.disabled, self.available = False, True
        self.world_size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        phases.charge(2 * MIB, "communicator")
