"""Starts by the number of ranks: what their communicators cost, DP attention, and the story at its real size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bench.scenarios import FAILURES, STORY_GPU, Scenario, experiment
from bench.stage import Stage
from lanes.server import group_members

AS_QWEN3: Final = ("--json-model-override-args", '{"architectures": ["Qwen3ForCausalLM"]}')
"""SGLang's Llama knows no DP attention and splits its heads by tp; Qwen 3 of the same sizes has it, and a norm more."""
NO_FORWARD: Final = ("--disable-cuda-graph", "--skip-server-warmup")
"""No pass through the model: the all-reduce's kernels, a minute of compiling for each number of ranks, stay unmade."""
FIRST_FAMILY: Final = {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0"}
SIZES: Final = (1, 2, 4, 8)
"""Numbers of ranks whose cost before the weights is asked for."""


def before_weights(ranks: int, variables: Mapping[str, str] | None = None) -> Callable[[Stage], None]:
    """Return the play of a start that serves nobody: what so many ranks cost before the weights."""

    def play(stage: Stage) -> None:
        with stage.server("--tp", str(ranks), *NO_FORWARD, variables=variables) as server:
            stage.until_ready(server)
            stage.notes["process_mib"] = stage.cards.mib_by_title(set(group_members(server.pid)))

    return play


def dp_attention(tp: int) -> Scenario:
    """Return a start whose attention layers are two replicas."""
    flags = ("--tp", str(tp), "--dp", "2", "--enable-dp-attention")
    play = experiment(*flags, *AS_QWEN3)
    return Scenario(f"dpattn-tp{tp}", f"{' '.join(flags)}, as Qwen 3", play, ("ready",), (None,), 60, tp, tp)


DP_ATTENTION: Final = tuple(map(dp_attention, (2, 4)))

BY_RANKS: Final = (
    *(
        Scenario(f"ranks{size}", f"--tp {size}, no forward pass", before_weights(size), ("ready",), (None,), 25,
                 size if size > 1 else 0, size)
        for size in SIZES
    ),
    *(
        Scenario(f"ranks{size}-v1", f"--tp {size}, no forward pass, the first family's all-reduce",
                 before_weights(size, FIRST_FAMILY), ("ready",), (None,), 25, size, size)
        for size in SIZES
        if size > 1
    ),
)  # fmt: skip
"""What the ranks' communicators and all-reduce buffers cost, by their number; by_ranks.py makes a table of them."""


def story(tp: int) -> list[Scenario]:
    """Return the starts of the story at its real size, --tp 8: with fewer ranks the nearest that they can play."""
    names = (
        "car", "nocar", "tenant-gpu5" if tp > STORY_GPU else "tenant", "lowfrac",
        "dpattn-tp4" if tp >= 4 else "dpattn-tp2",
    )  # fmt: skip
    by_name = {one.name: one for one in (*FAILURES, *DP_ATTENTION)}
    return [by_name[name] for name in names]
