"""Runs of one, eight and hundreds of ranks to render: made of a recorded one, so that no large file is kept."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from bench.many_ranks import write_ranks
from sglang_probe.collect.read import read
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Timeline

SIZES = (1, 8, 512)
ODD = {1: (), 8: (5,), 512: (37, 200)}
"""Size of a run -> its ranks that differ."""


@cache
def sized(ranks: int, odd: tuple[int, ...]) -> Timeline:
    """Return a run of so many ranks, of which those of `odd` have less memory and are slow."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        write_ranks(run, ranks, odd=odd)
        return build(read([run]), alive=lambda _: None)
