"""mscclpp, as far as SGLang asks it."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from sglang_probe.testing.core.cuda import cuda
from tests.bodies.rank import device as gpu
from tests.bodies.rank.loading import Thing


class RawGpuBuffer:
    """mscclpp.RawGpuBuffer: memory of its own, lent out as dlpack."""

    def __init__(self, size: int) -> None:
        self.tensor = gpu.outside_tensor("mscclpp", (size // 2,), torch.float16, cuda().current)

    def to_dlpack(self, **_: Any) -> Any:
        return self.tensor


class Algorithms:
    """mscclpp.ext.AlgorithmCollectionBuilder: one algorithm."""

    def build_default_algorithms(self, **_: Any) -> list[Any]:
        nothing = lambda *_: None  # noqa: E731
        return [
            SimpleNamespace(
                name="default_allreduce_packet",
                set_message_size_range=nothing,
                reset=nothing,
                message_size_range=(0, 0),
            )
        ]


_SPEC = (
    "name",
    "collective",
    "nranks_per_node",
    "world_size",
    "in_place",
    "instances",
    "protocol",
    "instr_fusion",
    "auto_sync",
    "replication_policy",
    "reuse_resources",
    "use_double_scratch_buffer",
    "buffer_alignment",
    "num_threads_per_block",
    "min_message_size",
    "max_message_size",
    "tags",
)
_COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter")


def _named(name: str, *_: Any) -> Any:
    return SimpleNamespace(name=name)


_LANGUAGE = SimpleNamespace(
    AlgoSpec=dataclasses.make_dataclass("AlgoSpec", [(name, Any, None) for name in _SPEC]),
    collectives=SimpleNamespace(**{name: partial(_named, name.lower()) for name in _COLLECTIVES}),
    ReplicationPolicy=Thing("ReplicationPolicy"),
)
MSCCLPP = {
    "RawGpuBuffer": RawGpuBuffer,
    "language": _LANGUAGE,
    "is_nvls_supported": lambda: True,
    "CommGroup": lambda **words: SimpleNamespace(communicator=1, nranks_per_ipc_domain=words["size"]),
    "Executor": lambda _: SimpleNamespace(reset=lambda: None),
}
"""What `mscclpp` must hold."""
