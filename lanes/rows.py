"""The lanes as data: one row per SGLang release, on one shared base."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
BASE_PINS: Final = HERE / "base.txt"
STAND_INS: Final = HERE / "standins"

RECIPE: Final = 1
"""Part of every lane's stamp: raise it when build.py builds a lane in another way."""
PYTHON: Final = (3, 11)
"""The pins have wheels for this CPython."""
TORCH: Final = ("torch==2.13.0", "triton==3.9.0")
"""Installed with what they need: where a package index serves torch's CUDA build, that is a long list."""


@dataclass(frozen=True)
class Row:
    """How one release is brought to serve on a CPU. Requirements are pip's, exact."""

    version: str
    why: str
    needs: tuple[str, ...]
    alone: tuple[str, ...] = ()
    """Installed without dependencies, where those would change the base."""
    stand_ins: tuple[str, ...] = ()
    """Packages of `standins/`, only so that imports succeed."""
    probe: tuple[str, ...] = ("wrapt==2.5.2", "structlog==26.1.0")
    """What the agent needs in SGLang's own environment."""


OLDEST_PROBE: Final = ("wrapt==1.16.0", "structlog==23.1.0")
"""The oldest that the package claims to work with: one lane holds it to that."""

ROWS: Final[dict[str, Row]] = {
    row.version: row
    for row in (
        Row(
            "0.4.6.post5",
            why="profile_max_num_token on ModelRunner itself",
            needs=("transformers==4.51.1",),
            alone=("triton==3.2.0", "torchao==0.9.0", "compressed-tensors==0.9.4"),
            stand_ins=("sgl_kernel", "vllm", "intel_extension_for_pytorch"),
        ),
        Row(
            "0.5.2",
            why="the same on ModelRunner, with other terms; pools that log their size",
            needs=("transformers==4.56.1",),
            alone=("torchao==0.9.0",),
            stand_ins=("sgl_kernel", "vllm"),
        ),
        Row(
            "0.5.9",
            why="profile_max_num_token in a mixin, result in tokens",
            needs=("transformers==4.57.1",),
            stand_ins=("sgl_kernel",),
            probe=OLDEST_PROBE,
        ),
        Row("0.5.14", why="_profile_available_bytes in a mixin, result in bytes", needs=("transformers==5.8.1",)),
        Row(
            "0.5.16",
            why="the budget in a module of its own, mem_cache/kv_cache_configurator.py",
            needs=("transformers==5.12.1", "zstandard"),
            alone=("xgrammar==0.2.1", "apache-tvm-ffi==0.1.11"),
            stand_ins=("sgl_kernel",),
        ),
        Row(
            "0.5.23",
            why="the newest",
            needs=("transformers==5.19.0", "tokenizers==0.23.2", "xxhash", "zstandard"),
            alone=("xgrammar==0.2.7", "apache-tvm-ffi==0.1.11"),
            stand_ins=("sgl_kernel",),
        ),
    )
}
