"""torch.distributed over the ledger: each collective is a meeting of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakegpu.cuda import cuda
from fakegpu.meeting import Group

from torch._C import ProcessGroup as _ProcessGroup
from torch._tensor import Tensor


class ProcessGroup(_ProcessGroup):
    """The ranks of one group and the backend they talk over."""

    def __init__(self, meetings: Group | None, backend: str, ranks: list[int]) -> None:
        self.meetings, self.backend, self.ranks = meetings, backend, ranks

    def size(self) -> int:
        return len(self.ranks)

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value. Raises RuntimeError where this process is not of the group or a rank has died."""
        if self.meetings is None:
            raise RuntimeError("this process is not a member of the group")
        return self.meetings.gather(value)


class Backend:
    """Names of backends."""

    NCCL = "nccl"
    GLOO = "gloo"


class ReduceOp:
    """What a reduction does with the ranks' values."""

    MIN: Callable[[list[Any]], Any] = min
    MAX: Callable[[list[Any]], Any] = max
    SUM: Callable[[list[Any]], Any] = sum


class _World:
    group: ProcessGroup | None = None
    rank = 0
    init_method = ""
    groups_made = 0


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return _World.group is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Meet the other ranks of the world. Raises RuntimeError where one dies before it came."""
    _World.rank, _World.init_method, _World.groups_made = rank, init_method or "env://", 0
    ranks = list(range(world_size))
    cuda().ledger.join(_World.init_method, rank)
    _World.group = ProcessGroup(_meetings("world", ranks), backend or "nccl", ranks)
    _World.group.gather(rank)


def _meetings(name: str, ranks: list[int]) -> Group | None:
    if _World.rank not in ranks:
        return None
    return Group(cuda().ledger, _World.init_method, name, ranks, _World.rank)


def new_group(
    ranks: list[int] | None = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None
) -> ProcessGroup:
    """Make a group; every rank of the world must make the same ones in the same order."""
    _World.groups_made += 1
    chosen = list(range(get_world_size())) if ranks is None else list(ranks)
    return ProcessGroup(_meetings(f"group{_World.groups_made}", chosen), backend or "nccl", chosen)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    _World.group = None


def _group(group: ProcessGroup | None) -> ProcessGroup:
    chosen = group or _World.group
    if chosen is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return chosen


def get_rank(group: ProcessGroup | None = None) -> int:
    return _group(group).ranks.index(_World.rank)


def get_world_size(group: ProcessGroup | None = None) -> int:
    return _group(group).size()


def get_backend(group: ProcessGroup | None = None) -> str:
    return _group(group).backend


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    return _group(group).ranks


def all_reduce(
    tensor: Tensor, op: Callable[[list[Any]], Any] = ReduceOp.SUM, group: ProcessGroup | None = None
) -> None:
    """Replace the tensor's number by `op` over the ranks'."""
    tensor.data = op(_group(group).gather(tensor.data))


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill `object_list` with every rank's object, which must be of JSON's kind."""
    object_list[:] = _group(group).gather(obj)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None) -> None:
    for place, data in zip(tensor_list, _group(group).gather(tensor.data), strict=True):
        place.data = data


def broadcast(tensor: Tensor, src: int = 0, group: ProcessGroup | None = None) -> None:
    chosen = _group(group)
    tensor.data = chosen.gather(tensor.data)[chosen.ranks.index(src)]


def barrier(group: ProcessGroup | None = None) -> None:
    _group(group).gather(None)


def monitored_barrier(group: ProcessGroup | None = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    _group(group).gather(None)
