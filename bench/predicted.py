"""What SGLang's custom all-reduce takes of a card for a number of ranks, foretold from its source; nothing is run here.

The agent reads the same sizes off the living objects. These come from constants alone, so that each checks the other.
Bytes, of one rank. Read in SGLang 0.5.14 with sglang-kernel 0.4.4 and torch 2.11, for cards before Blackwell; the
second family's constants are those of 0.5.11 to 0.5.15.post1. NCCL has no formula: what it takes is only measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

KIB: Final = 1 << 10
MIB: Final = 1 << 20
PAGE: Final = 2 * MIB
"""What `cudaMalloc` hands out of the card for anything larger: measured, 33572096 bytes took 17 of them."""
H200_MULTIPROCESSORS: Final = 132

FIRST_DATA: Final = 8192 * KIB
"""`CustomAllreduce._MAX_CAR_SIZE` on CUDA, of both shared buffers and of the pointers (`custom_all_reduce.py`)."""
FIRST_SIGNALS: Final = 3456
"""`meta_size()` of sglang-kernel 0.4.4, which returns a constant: 3 sets of 36 blocks x 8 ranks x 4 bytes."""
TORCH_SEGMENT: Final = 20 * MIB
"""What torch's caching allocator takes for a tensor of 1 to 10 MiB (`c10/core/AllocatorConfig.h`, kLargeBuffer)."""

SECOND_PULL: Final = 16 * MIB
SECOND_PUSH: Final[Mapping[int, int]] = {
    2: 2 * MIB, 3: 512 * KIB, 4: 384 * KIB, 5: 256 * KIB, 6: 192 * KIB, 7: 192 * KIB, 8: 160 * KIB,
}  # fmt: skip
"""`one_shot_push_threshold` by ranks, the second table (`custom_all_reduce_v2.py`): SGLang's own trials on H200s."""
SECOND_STAGES: Final = 2
"""A peer's slot twice over: one all-reduce may begin while the last is read (`PushController::kNumStages`)."""
SECOND_INPUTS: Final = 131072
"""`graph_input_count`; one more entry is that of the eager path."""
SECOND_ENTRY: Final = 8 * 8
"""Pointers to one input: of 8 GPUs, whatever the group's size (`AllReduceData`, `kMaxNumGPU`)."""
SECOND_LINE: Final = 128
"""Bytes of one pull signal (`Semaphore`), and to which every part is rounded."""
SECOND_PUSH_SIGNAL: Final = 4

SYMMETRIC_DATA: Final[Mapping[int, int]] = {2: 64 * MIB, 4: 64 * MIB, 6: 128 * MIB, 8: 128 * MIB}
"""`TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES` (`all_reduce_utils.py`), compute capability 9 and 10."""


class Predicted(NamedTuple):
    """What a class asks for, and what the card loses by it."""

    asked: int
    taken: int | None
    """In whole pages and segments; None: not known how it is rounded."""


def second_family(ranks: int, blocks: int = H200_MULTIPROCESSORS) -> Predicted | None:
    """Return what CustomAllReduceV2 takes; None where it is not built for so many ranks.

    One `cudaMalloc` of five parts (`CustomAllReduceBase::storage_bytes`), one block of each kernel a multiprocessor;
    nothing of it lies in torch's allocator, and the peers' parts are mapped, not copied.
    Worked example, 2 ranks of an H200: signals 132 x 128 = 16896 and 132 x 4 -> 640; graph inputs 131073 x 64 ->
    8388736; pull 16777216; push 2 x 2 ranks x 2097152 = 8388608: 33572096 in all, 17 pages, 34 MiB.
    """
    push = SECOND_PUSH.get(ranks)
    if push is None:
        return None
    asked = (
        _up(blocks * SECOND_LINE, SECOND_LINE)
        + _up(blocks * SECOND_PUSH_SIGNAL, SECOND_LINE)
        + _up((1 + SECOND_INPUTS) * SECOND_ENTRY, SECOND_LINE)
        + SECOND_PULL
        + _up(SECOND_STAGES * ranks * push, SECOND_LINE)
    )
    return Predicted(asked, _up(asked, PAGE))


def first_family(ranks: int) -> Predicted | None:
    """Return what CustomAllreduce takes, the default up to 0.5.11; None where it is not built for so many ranks.

    Two `cudaMalloc`, signals with a temporary and the staging buffer, and a torch tensor of pointers. The ranks are no
    term: a signal has room for 8. torch had no segment of that kind before, so it takes a whole one, whose rest serves
    later tensors. Worked example: 8388608 + 3456 -> 10 MiB, 8388608 -> 8 MiB, 8388608 from a segment of 20: 38 MiB.
    """
    if ranks not in (2, 4, 6, 8):
        return None
    shared = (FIRST_SIGNALS + FIRST_DATA, FIRST_DATA)
    return Predicted(sum(shared) + FIRST_DATA, sum(_up(size, PAGE) for size in shared) + TORCH_SEGMENT)


def torch_symm_mem(ranks: int) -> Predicted | None:
    """Return what TorchSymmMemCommunicator asks for with --enable-torch-symm-mem; None where it is not built.

    Memory mapped in pages (VMM), outside torch's caching allocator, with torch's own signals beside it.
    """
    data = SYMMETRIC_DATA.get(ranks)
    return None if data is None else Predicted(data, None)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


CLASSES: Final[Mapping[str, Callable[[int], Predicted | None]]] = {
    "CustomAllReduceV2": second_family,
    "CustomAllreduce": first_family,
    "TorchSymmMemCommunicator": torch_symm_mem,
}
"""By the class that an `allreduce.buffers` event names."""
