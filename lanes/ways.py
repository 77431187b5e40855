"""Ways into SGLang other than a plain server, as data: each with the lanes on which tests walk it.

More lanes could walk most of them, at 10 to 20 s of every run of CI; `docs/lanes.md` says what stands in the way of
the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from lanes.rows import ROWS

EVERY: Final = tuple(ROWS)
INTERPRETED: Final = {"TRITON_INTERPRET": "1"}
"""Triton's kernels without a GPU: they run as Python."""
REPLICAS = "--dp 2 --max-total-tokens 65536"
"""Small pools: replicas share the host's memory, and one's pool, taken between the other's two readings, is missing."""
BOUND: Final = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
"""The cores of each rank: 0.5.23 counts every kind of rank and must be told; older releases count TP ranks alone."""

Until = Literal["served", "started", "ended"]


@dataclass(frozen=True)
class Way:
    """One way: the command, SGLang's flags, and what a start by it must come to."""

    name: str
    lanes: tuple[str, ...]
    flags: str = ""
    command: str = "{python} -m sglang.launch_server"
    env: Mapping[str, str] = field(default_factory=dict)
    ranks: tuple[str, ...] = ("TP0",)
    """The label of each rank."""
    pools: tuple[str, ...] = ("MHA",)
    """Kinds that are among the target's pools."""
    until: Until = "served"
    """`started`: every rank comes up, but the release cannot answer here; `ended`: no server, it ends by itself."""
    draft: bool = False


ONE_BATCH: Final = "--model-path {models}/wide --batch-size 1 --input-len 8 --output-len 4"
ADAPTER: Final = """
    --model-path {models}/weighted --load-format auto --lora-paths tiny={models}/lora --max-loras-per-batch 1
"""
STANDALONE: Final = """
    --speculative-algorithm STANDALONE --speculative-draft-model-path {models}/draft
    --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2
    --attention-backend triton --disable-cuda-graph --skip-server-warmup
"""

WAYS: Final[Mapping[str, Way]] = {
    way.name: way
    for way in (
        Way("bench_one_batch", EVERY[:-1], ONE_BATCH, "{python} -m sglang.bench_one_batch", until="ended"),
        Way("benchmark.one_batch", EVERY[-1:], ONE_BATCH, "{python} -m sglang.benchmark.one_batch", until="ended"),
        Way("Engine", ("0.5.9", "0.5.14"), "{models}/tiny", "{python} {programs}/engine.py", until="ended"),
        Way("sglang serve", ("0.5.23",), command="{bin}/sglang serve"),
        Way("--dp 2", ("0.5.2",), REPLICAS, ranks=("DP0", "DP1")),
        Way("--dp 2 on bound cores", ("0.5.23",), REPLICAS, env=BOUND, ranks=("DP0", "DP1")),
        Way("--pp-size 2", ("0.5.14",), "--pp-size 2", ranks=("PP0", "PP1")),
        Way("--pp-size 2, not asked", ("0.4.6.post5",), "--pp-size 2", ranks=("PP0", "PP1"), until="started"),
        Way("STANDALONE draft", ("0.5.9", "0.5.14"), STANDALONE, env=INTERPRETED, until="started", draft=True),
        Way("LoRA", ("0.4.6.post5",), f"{ADAPTER} --disable-radix-cache --disable-cuda-graph", until="started"),
        Way("LoRA by torch", ("0.5.9",), f"{ADAPTER} --enable-lora --lora-backend torch_native", until="started"),
        Way(
            "latent attention",
            ("0.5.9", "0.5.16"),
            "--model-path {models}/mla --skip-server-warmup",
            pools=("MLA",),
            until="started",
        ),
        Way("hybrid window", ("0.5.14", "0.5.23"), "--model-path {models}/swa", pools=("SWA",)),
    )
}
