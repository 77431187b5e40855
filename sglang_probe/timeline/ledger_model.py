"""What a device's memory was spent on: the structures, in bytes. What is unknown is None, never 0."""

from __future__ import annotations

from typing import Literal

import msgspec

from sglang_probe.collect.records import Int64

TotalSource = Literal["nvml_total_bytes", "device_total_bytes"]
AsOf = Literal["after", "last_known"]
"""Of which reading a step's ledger is: of its end, or of the last one before it had none."""


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """What the device's memory was spent on at one moment, in bytes: the rows that are known sum to the total.

    Worked example, in GiB: of a total of 140.4 the driver holds 0.6, a context 0.5, weights 4.2, the KV cache 121.5,
    and 12.2 are free: `unexplained` is what is left, 1.4. A row of None is in it.
    """

    driver_reserved: int | None = None
    cuda_context: int | None = None
    communicator: int | None = None
    custom_allreduce: int | None = None
    weights_target: int | None = None
    weights_draft: int | None = None
    kv_pool: int | None = None
    request_pool: int | None = None
    attention_workspace: int | None = None
    lora: int | None = None
    graphs: int | None = None
    torch_cached: int | None = None
    other_process: int | None = None
    """This process's, outside every role."""
    run_processes: int | None = None
    """Other processes of the run on this device."""
    foreign: int | None = None
    free: int | None = None
    unexplained: int | None = None
    """May be negative."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another process on the device, by NVML's lists among this process's readings."""

    pid: Int64
    start_ticks: Int64 | None = None
    name: str | None = None
    kind: Literal["run", "foreign"]
    """Whether it is of the same run."""
    bytes: Int64 | None = None
    """As last listed."""
    peak_bytes: Int64 | None = None
    gone: bool = False
    """It is not in the last list any more."""
    user: str | None = None
    """Its owner, or the uid where that has no name here."""
    began_before_s: float | None = None
    """Seconds by which it is older than this rank's process; negative: it came later."""
    left_over: bool = False
    """A process of SGLang's whose parent has ended: nobody will end it."""


class PreLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """From what is free on the idle card to the pre-load memory, by what was free at each step of the distributed init.

    Worked example, in GiB: 139.797 idle - 0.512 context - 0.091 world group - 0.883 communicators - 0.033 custom
    all-reduce + 0.002 given back = 138.280. It closes to the byte.
    """

    nvml_total_bytes: int | None = None
    driver_reserved_bytes: int | None = None
    unlisted_bytes: int | None = None
    """NVML's total less the driver's part and idle free: others', or nobody's."""
    idle_free_bytes: int | None = None
    """Free just before this process had a context."""
    idle_free_reason: str | None = None
    context_bytes: int | None = None
    world_group_bytes: int | None = None
    communicators_bytes: int | None = None
    custom_allreduce_bytes: int | None = None
    other_bytes: int | None = None
    """The rest of the way; negative: given back."""
    pre_load_bytes: int | None = None
    """This rank's own: the budget takes the minimum over the ranks."""
    not_separable: str | None = None
    """Why memory of others may be in these figures; None where it cannot."""
    custom_allreduce_tokens: float | None = None
    """KV tokens that the memory of the custom all-reduce would hold."""
    custom_allreduce_tokens_reason: str | None = None
