"""Runs to compare: the recorded ones, and any that can be made."""

from __future__ import annotations

import functools
import io
from pathlib import Path

from sglang_probe.collect import read
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run
from tests.collect.building import Host
from tests.collect.starting import Shape, launch
from tests.timeline.making import unknowable

DATA = Path(__file__).resolve().parents[2] / "data"
FIRST = DATA / "h200-x2-sglang-0.5.14"
SECOND = DATA / "h200-x2-sglang-0.5.14-failures"
RECORDED = tuple(sorted(path for base in (FIRST, SECOND) for path in base.iterdir() if path.is_dir()))
GIB = 1 << 30


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
