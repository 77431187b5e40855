"""The builders write what the contract allows, so that the other tests stand on real ground."""

from __future__ import annotations

import jsonschema
import pytest

from sglang_probe.events.jsonschema import event_schema
from tests.collect.starting import Shape, launch

VALIDATOR = jsonschema.Draft202012Validator(event_schema())


@pytest.mark.parametrize(
    "shape",
    [Shape(), Shape(fraction=0.1), Shape(unit="tokens"), Shape(fail_in="weights.load"), Shape(stop_in="graph.capture")],
    ids=["ready", "no memory", "in tokens", "error", "killed"],
)
def test_every_built_event_is_valid_against_the_schema(shape: Shape) -> None:
    events = [event for writer in launch([shape, Shape()]) for event in writer.events]

    assert [] == [error.message for event in events for error in VALIDATOR.iter_errors(event)]
