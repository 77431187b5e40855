"""The groups of ranks and what each keeps to talk with."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import torch
from fakegpu.cuda import cuda
from sglang._fake import phases
from sglang._fake.groups import ranks_of_groups

logger = logging.getLogger(__name__)

_group_name_counter: dict[str, int] = {}
_ENABLE_CUSTOM_ALL_REDUCE = True
_ENABLE_MSCCLPP_ALL_REDUCE = False
_ENABLE_TORCH_SYMM_MEM_ALL_REDUCE = False


def _get_unique_name(name: str) -> str:
    number = _group_name_counter.get(name, 0)
    _group_name_counter[name] = number + 1
    return f"{name}:{number}"


class GroupCoordinator:
    """A group of ranks with its communicators."""

    def __init__(
        self,
        group_ranks: list[list[int]],
        local_rank: int,
        torch_distributed_backend: Any,
        use_pynccl: bool,
        use_pymscclpp: bool,
        use_custom_allreduce: bool,
        use_torch_symm_mem_all_reduce: bool,
        use_hpu_communicator: bool,
        use_xpu_communicator: bool,
        use_npu_communicator: bool,
        use_message_queue_broadcaster: bool = False,
        group_name: str | None = None,
        pynccl_use_current_stream: bool = False,
        gloo_timeout: timedelta = timedelta(seconds=120 * 60),
    ) -> None:
        self.unique_name = _get_unique_name(group_name or "anonymous")
        self.rank, self.local_rank = torch.distributed.get_rank(), local_rank
        self.device = torch.device(f"cuda:{local_rank}")
        with cuda().label("communicator"):
            self._fake_join(group_ranks, torch_distributed_backend)
        if group_name == "world":
            phases.charge(phases.costs().world_group_bytes, "communicator")
        from sglang.srt.distributed.device_communicators.custom_all_reduce import dispatch_custom_allreduce
        from sglang.srt.distributed.device_communicators.pymscclpp import PyMscclppCommunicator
        from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
        from sglang.srt.distributed.device_communicators.torch_symm_mem import TorchSymmMemCommunicator

        self.pynccl_comm: PyNcclCommunicator | None = None
        if use_pynccl and self.world_size > 1:
            self.pynccl_comm = PyNcclCommunicator(
                group=self.cpu_group, device=self.device, use_current_stream=pynccl_use_current_stream
            )
        self.pymscclpp_comm: Any = None
        if use_pymscclpp and self.world_size > 1:
            self.pymscclpp_comm = PyMscclppCommunicator(group=self.cpu_group, device=self.device)
        self.ca_comm: Any = None
        if use_custom_allreduce and self.world_size > 1:
            try:
                chosen = dispatch_custom_allreduce()
                self.ca_comm = chosen(group=self.cpu_group, device=self.device)
            except Exception as e:
                logger.warning(
                    f"Setup Custom allreduce failed with {e}. To silence this "
                    "warning, specify --disable-custom-all-reduce explicitly."
                )
        self.torch_symm_mem_comm: Any = None
        if use_torch_symm_mem_all_reduce and self.world_size > 1:
            self.torch_symm_mem_comm = TorchSymmMemCommunicator(group=self.cpu_group, device=self.device)

    def _fake_join(self, group_ranks: list[list[int]], backend: Any) -> None:
        for ranks in group_ranks:
            active_ranks = torch.ones(len(ranks), dtype=torch.int32, device=self.device)
            device_group = torch.distributed.new_group(ranks, backend=backend)
            cpu_group = torch.distributed.new_group(ranks, backend="gloo")
            if self.rank in ranks:
                self.ranks, self.world_size, self.rank_in_group = ranks, len(ranks), ranks.index(self.rank)
                self.device_group, self.cpu_group, self.active_ranks = device_group, cpu_group, active_ranks

    def barrier(self) -> None:
        torch.distributed.barrier(group=self.cpu_group)


_WORLD: GroupCoordinator | None = None
_TP: GroupCoordinator | None = None
_ATTN_TP: GroupCoordinator | None = None
_ATTN_CP: GroupCoordinator | None = None
_MOE_DP: GroupCoordinator | None = None
_MOE_EP: GroupCoordinator | None = None
_MOE_TP: GroupCoordinator | None = None
_PP: GroupCoordinator | None = None


def get_world_group() -> GroupCoordinator:
    assert _WORLD is not None, "world group is not initialized"
    return _WORLD


def init_world_group(ranks: list[int], local_rank: int, backend: str) -> GroupCoordinator:
    return GroupCoordinator(
        group_ranks=[ranks],
        local_rank=local_rank,
        torch_distributed_backend=backend,
        use_pynccl=False,
        use_pymscclpp=False,
        use_custom_allreduce=False,
        use_torch_symm_mem_all_reduce=False,
        use_hpu_communicator=False,
        use_xpu_communicator=False,
        use_npu_communicator=False,
        group_name="world",
    )


def init_model_parallel_group(
    group_ranks: list[list[int]],
    local_rank: int,
    backend: str,
    use_pynccl: bool | None = None,
    use_custom_allreduce: bool | None = None,
    use_message_queue_broadcaster: bool = False,
    group_name: str | None = None,
    use_mscclpp_allreduce: bool | None = None,
    pynccl_use_current_stream: bool = True,
    use_torch_symm_mem_allreduce: bool | None = None,
) -> GroupCoordinator:
    return GroupCoordinator(
        group_ranks=group_ranks,
        local_rank=local_rank,
        torch_distributed_backend=backend,
        use_pynccl=True if use_pynccl is None else use_pynccl,
        use_pymscclpp=_ENABLE_MSCCLPP_ALL_REDUCE if use_mscclpp_allreduce is None else use_mscclpp_allreduce,
        use_custom_allreduce=_ENABLE_CUSTOM_ALL_REDUCE if use_custom_allreduce is None else use_custom_allreduce,
        use_torch_symm_mem_all_reduce=(
            _ENABLE_TORCH_SYMM_MEM_ALL_REDUCE if use_torch_symm_mem_allreduce is None else use_torch_symm_mem_allreduce
        ),
        use_hpu_communicator=True,
        use_xpu_communicator=True,
        use_npu_communicator=True,
        use_message_queue_broadcaster=use_message_queue_broadcaster,
        group_name=group_name,
        pynccl_use_current_stream=pynccl_use_current_stream,
    )


def get_tp_group() -> GroupCoordinator:
    assert _TP is not None, "tensor model parallel group is not initialized"
    return _TP


def get_attn_tp_group() -> GroupCoordinator:
    assert _ATTN_TP is not None, "attention tensor model parallel group is not initialized"
    return _ATTN_TP


def get_attn_cp_group() -> GroupCoordinator:
    assert _ATTN_CP is not None, "attention context model parallel group is not initialized"
    return _ATTN_CP


def get_pp_group() -> GroupCoordinator:
    assert _PP is not None, "pipeline model parallel group is not initialized"
    return _PP


def set_custom_all_reduce(enable: bool) -> None:
    global _ENABLE_CUSTOM_ALL_REDUCE
    _ENABLE_CUSTOM_ALL_REDUCE = enable


def set_mscclpp_all_reduce(enable: bool) -> None:
    global _ENABLE_MSCCLPP_ALL_REDUCE
    _ENABLE_MSCCLPP_ALL_REDUCE = enable


def set_torch_symm_mem_all_reduce(enable: bool) -> None:
    global _ENABLE_TORCH_SYMM_MEM_ALL_REDUCE
    _ENABLE_TORCH_SYMM_MEM_ALL_REDUCE = enable


def init_distributed_environment(
    world_size: int = -1,
    rank: int = -1,
    distributed_init_method: str = "env://",
    local_rank: int = -1,
    backend: str = "nccl",
    timeout: int | None = None,
) -> None:
    """Meet the world and make its group."""
    global _WORLD
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            backend=backend, init_method=distributed_init_method, world_size=world_size, rank=rank, timeout=timeout
        )
    if _WORLD is None:
        ranks = list(range(torch.distributed.get_world_size()))
        _WORLD = init_world_group(ranks, local_rank, backend)


def initialize_model_parallel(
    tensor_model_parallel_size: int = 1,
    expert_model_parallel_size: int = 1,
    pipeline_model_parallel_size: int = 1,
    attention_data_parallel_size: int = 1,
    attention_context_model_parallel_size: int = 1,
    moe_data_model_parallel_size: int = 1,
    backend: str | None = None,
    duplicate_tp_group: bool = False,
) -> None:
    """Make the groups; one that equals the tensor-parallel group is that group."""
    global _TP, _ATTN_CP, _ATTN_TP, _MOE_DP, _MOE_EP, _MOE_TP, _PP
    world = get_world_group()
    chosen = backend or torch.distributed.get_backend(world.device_group)
    groups = ranks_of_groups(
        world.world_size,
        tensor_model_parallel_size,
        attention_data_parallel_size,
        attention_context_model_parallel_size,
        expert_model_parallel_size,
        moe_data_model_parallel_size,
    )

    def made(name: str, **options: Any) -> GroupCoordinator:
        ranks = groups[name]
        if _TP is not None and ranks == groups["tp"] and name != "pp":
            return _TP
        return init_model_parallel_group(ranks, world.local_rank, chosen, group_name=name, **options)

    _TP = made("tp", use_message_queue_broadcaster=True)
    _ATTN_CP = made("attn_cp")
    _ATTN_TP = made("attention_tp", use_pynccl=False, use_custom_allreduce=False, use_mscclpp_allreduce=False)
    _MOE_DP = made("moe_dp")
    _MOE_EP = made("moe_ep")
    _MOE_TP = made("moe_tp")
    _PP = made("pp", use_custom_allreduce=False)
