"""What a custom all-reduce asks of the machine first."""

from __future__ import annotations

import logging
from typing import Any

import torch.distributed as dist
from sglang._fake import phases

logger = logging.getLogger(__name__)


def gpu_p2p_access_check(src: int, tgt: int) -> bool:
    return True


def can_use_custom_all_reduce_with_nvlink(
    group: Any, device: Any, supported_world_size: list[int], cls_name: str
) -> bool | None:
    """Return whether the cards are fully linked, or None (with SGLang's warning) where the class cannot be used."""
    world_size = dist.get_world_size(group=group)
    if world_size == 1:
        return None
    if world_size not in supported_world_size:
        logger.warning(
            f"{cls_name} is disabled due to an unsupported world size: {world_size}. "
            f"Supported world sizes: {supported_world_size}. To silence this warning, "
            f"specify disable_custom_all_reduce=True explicitly."
        )
        return None
    if world_size > 2 and not phases.scenario().nvlink:
        logger.warning(
            f"{cls_name} is disabled because it's not supported on more than two PCIe-only GPUs. "
            "To silence this warning, specify disable_custom_all_reduce=True explicitly."
        )
        return None
    return phases.scenario().nvlink
