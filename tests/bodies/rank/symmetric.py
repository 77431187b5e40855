"""torch's symmetric memory on fake cards."""

from __future__ import annotations

from typing import Any

import torch

from tests.bodies.rank import device as gpu


class Handle:
    """What a rendezvous of torch's symmetric memory returns, on cards with NVLink multicast or without."""

    def __init__(self, tensor: Any, multicast: bool, rank: int) -> None:
        self._tensor, self.rank = tensor, rank
        self.multicast_ptr = 0x5000 if multicast else 0
        self.signal_pad_ptrs_dev = self.buffer_ptrs_dev = 0

    def get_buffer(self, rank: int, sizes: Any, dtype: Any, *_: Any) -> Any:
        return self._tensor.view(-1)[: sizes[0]] if rank == self.rank else torch.empty(sizes, dtype=dtype)


multicast = True
"""Whether the fake cards can multicast; a case may turn it off."""
SIGNAL_PAD = 2048


def install() -> None:
    """Let torch's symmetric memory be memory of the fake cards, outside torch's allocator."""
    import torch.distributed._symmetric_memory as symmetric
    from torch._C._distributed_c10d import _SymmetricMemory

    def rendezvous(tensor: Any, group: Any = None) -> Handle:
        return Handle(tensor, multicast, torch.distributed.get_rank())

    def strided(size: Any, stride: Any, dtype: Any, device: Any, *_: Any) -> Any:
        return gpu.outside_tensor("symmetric", tuple(size), dtype, device, SIGNAL_PAD)

    def empty(*size: Any, dtype: Any = None, device: Any = None) -> Any:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return gpu.outside_tensor("symmetric", tuple(shape), dtype, device, SIGNAL_PAD)

    _SymmetricMemory.empty_strided_p2p = staticmethod(strided)
    _SymmetricMemory.rendezvous = staticmethod(rendezvous)
    symmetric.empty, symmetric.rendezvous = empty, rendezvous
    symmetric.enable_symm_mem_for_group = lambda *_: None
    symmetric.get_signal_pad_size, symmetric.set_signal_pad_size = (lambda: SIGNAL_PAD), (lambda _: None)
