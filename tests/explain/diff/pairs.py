"""Runs to compare: the recorded ones, and any that can be made."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from sglang_probe.collect import read
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run, Worker
from tests.collect.building import Host
from tests.collect.starting import Shape, launch
from tests.timeline.making import unknowable

DATA = Path(__file__).resolve().parents[2] / "data"
FIRST = DATA / "h200-x2-sglang-0.5.14"
SECOND = DATA / "h200-x2-sglang-0.5.14-failures"
EXPERIMENTS = DATA / "h200-x2-sglang-0.5.14-experiments"
RECORDED = tuple(sorted(path for base in (FIRST, SECOND) for path in base.iterdir() if path.is_dir()))
GIB = 1 << 30

BARE = Shape(fraction=0.5, context=0, communicator=0, allreduce=0, weights=0, bytes_per_token=1)
LESS = 1_073_741  # of which half is half a thousandth of a GiB
OUTWEIGHED = (
    [BARE, replace(BARE, context=LESS - 1, allreduce=1)],
    [replace(BARE, communicator=LESS + 1, max_total_tokens=1)],
)
"""Two runs whose pre-load memory is the same, and whose parts of it differ and outweigh each other."""


@functools.cache
def recorded(path: Path) -> Run:
    """Return the one run of a recording."""
    (run,) = build(read([str(path)]), alive=unknowable).runs
    return run


def made(*shapes: Shape, run_id: str = "one") -> Run:
    """Return the run of ranks of these shapes."""
    lines = b"".join(line for writer in launch(list(shapes), Host(), run_id=run_id) for line in writer.lines())
    (run,) = build(read(["-"], io.BytesIO(lines)), alive=unknowable).runs
    return run


def with_workers(run: Run, change: Callable[[Worker], Worker]) -> Run:
    """Return a run with other workers."""
    processes = (
        msgspec.structs.replace(process, workers=tuple(map(change, process.workers))) for process in run.processes
    )
    return msgspec.structs.replace(run, processes=tuple(processes))
