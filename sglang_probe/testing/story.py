"""The story that the project must settle in one look: an 8-GPU server that refuses to start.

Eight cards are idle with 97253 MiB (94.97 GiB) free each, by CUDA and by NVML. SGLang starts with
`--mem-fraction-static 0.55` and dies: not enough memory, please try to increase --mem-fraction-static.

    idle free                                     94.974 GiB
    - context, world group, NCCL, all-reduce       0.934          on every rank but one; 0.975 on the poorest
    = pre-load memory                             94.040 GiB      the minimum over the ranks: 93.999
    - weights                                     72.302 GiB
    = available                                   21.738 GiB      the minimum over the ranks: 21.697
    rest = 21.697 - 93.999 x (1 - 0.55)         = -20.603 GiB     no token fits
    minimum viable fraction = 1 - 21.697/93.999 = 0.7692          0.80 works
"""

from __future__ import annotations

from typing import Final

from sglang_probe.testing.core import allreduce
from sglang_probe.testing.core.allocator import LARGE_STEP, SMALL_SEGMENT
from sglang_probe.testing.core.scenario import GIB, MIB, Card, Costs, Model, Scenario

RANKS: Final = 8
LAST_WORDS_S: Final = 0.5
"""All ranks fail alike: each has this long to say so before the launcher ends the others."""
POOREST_RANK: Final = 5
MEM_FRACTION_STATIC: Final = 0.55

GRAIN: Final = 8192
"""SGLang's collective carries bytes as float32, whose step is this at 94 GiB: its multiples stay exact."""


def grain(gib: float) -> int:
    """Return `gib` in bytes, on the grain that float32 keeps."""
    return round(gib * GIB / GRAIN) * GRAIN


IDLE_FREE: Final = 97253 * MIB
PRE_LOAD_MINIMUM: Final = grain(93.999)
PRE_LOAD_USUAL: Final = grain(94.04)
AVAILABLE_MINIMUM: Final = grain(21.697)
"""Bytes, with the custom all-reduce on; without it each of these three is higher by what it costs."""

DEFAULT_RELEASE: Final = "0.5.9"
_ALLREDUCE_VERSION: Final = {"0.5.9": 1, "0.5.14": 2}


def story(release: str = DEFAULT_RELEASE) -> Scenario:
    """Return the scenario, which depends on the release only in what its custom all-reduce takes.

    NCCL's communicator is the balancing figure, so that with the custom all-reduce on the pre-load memory of each rank,
    and the available memory after the weights, are the story's to the byte.
    """
    card = Card(cuda_total_bytes=IDLE_FREE)
    world_group = 90 * MIB
    taken_by_torch = SMALL_SEGMENT  # the coordinators' own small tensors
    custom_allreduce = allreduce.device_cost(_ALLREDUCE_VERSION[release], RANKS)
    known = card.context_bytes + world_group + taken_by_torch + custom_allreduce
    communicator = IDLE_FREE - PRE_LOAD_USUAL - known
    weights = PRE_LOAD_MINIMUM - AVAILABLE_MINIMUM
    model = Model(
        architecture="DeepseekV3ForCausalLM", layers=61, kv_lora_rank=512, qk_rope_head_dim=64, context_len=163840
    )
    in_tensors = weights // (LARGE_STEP * model.layers) * (LARGE_STEP * model.layers)
    return Scenario(
        gpus=RANKS,
        card=card,
        model=model,
        costs=Costs(
            world_group_bytes=world_group,
            communicator_bytes=communicator,
            weights_torch_bytes=in_tensors,
            weights_bytes=weights - in_tensors,
        ),
        rank_costs={POOREST_RANK: {"communicator_bytes": communicator + PRE_LOAD_USUAL - PRE_LOAD_MINIMUM}},
        phase_seconds={"failed": LAST_WORDS_S},
        serve=False,
    )


def arguments(
    mem_fraction_static: float = MEM_FRACTION_STATIC, *, disable_custom_all_reduce: bool = False
) -> list[str]:
    """Return the flags of the story's server, for `FakeServer`."""
    given = ["--tp", str(RANKS), "--mem-fraction-static", str(mem_fraction_static)]
    return [*given, "--disable-custom-all-reduce"] if disable_custom_all_reduce else given
