"""Others' memory that came while the weights were loaded is no weights."""

from __future__ import annotations

import io
import json

import pytest

from sglang_probe.collect import read
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.terms import BESIDE, LATE, terms_of
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run
from tests.collect.building import Host, line_of
from tests.collect.starting import Shape, launch
from tests.explain.diff.pairs import GIB, made
from tests.timeline.making import unknowable

WEIGHTS = 20 * GIB


def joined(came: int, *, cached: int = 0) -> Run:
    """Return a start in which the device lost more than torch took while weights were loaded."""
    shape = Shape(weights=WEIGHTS + came)
    events = [json.loads(line) for writer in launch([shape], Host(), run_id="late") for line in writer.lines()]
    for event in events:
        if event["event"] == "sglang.memory.weights.load.end":
            event["after"]["torch_allocated_bytes"] = event["before"]["torch_allocated_bytes"] + WEIGHTS
            event["after"]["torch_reserved_bytes"] = event["before"]["torch_reserved_bytes"] + WEIGHTS + cached
    (run,) = build(read(["-"], io.BytesIO(b"".join(map(line_of, events)))), alive=unknowable).runs
    return run


def test_what_torch_does_not_hold_is_others_and_the_weights_are_torchs() -> None:
    found = compare((made(Shape(weights=WEIGHTS)), joined(10 * GIB)))
    assert found.arithmetic is not None
    parts = {piece.part: piece for piece in found.arithmetic.pieces}

    assert "weights" not in parts
    assert (0, 10 * GIB) == parts[LATE].values
    assert -10 * GIB == parts[LATE].delta_bytes
    assert "others' memory that came after the pre-load memory was read" in " ".join(found.says)


@pytest.mark.parametrize(("came", "cached"), [(BESIDE // 2, 0), (10 * GIB, 10 * GIB)])
def test_what_libraries_take_and_what_torch_keeps_cached_is_not_others(came: int, cached: int) -> None:
    terms = terms_of(joined(came, cached=cached))
    assert terms is not None

    assert (WEIGHTS + came, 0) == (terms.taken["weights"], terms.taken[LATE])
