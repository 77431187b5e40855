"""Whatever the events say: a plan, or one line that says what is missing; and it prints and serialises."""

from __future__ import annotations

import contextlib
import functools
import io
import json

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.collect import InputError, read
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import NOTHING, plan
from sglang_probe.explain.plan.model import CannotPlan
from sglang_probe.report.plan import plan_text
from sglang_probe.timeline import build
from tests.collect.building import Host, line_of
from tests.collect.starting import Shape, launch
from tests.explain.plan.making import CAR, DATA, inputs, recorded
from tests.timeline.any_values import spoil
from tests.timeline.making import timeline_of, unknowable

TELLING = ("kv.", "weights.load", "graph.capture", "attention.init", "server_args", "scheduler.init")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | st.sampled_from(["float32", "auto", "MLA", "request", "draft", "CudaGraphConfig(decode=PhaseConfig("])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
wishes = st.builds(
    Wishes,
    tokens=st.none() | st.integers(1, 1 << 24),
    concurrency=st.none() | st.integers(1, 1000),
    free_bytes=st.none() | st.integers(0, 1 << 38),
)
slow = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])


@functools.cache
def _lines() -> tuple[bytes, ...]:
    """The lines of one recorded rank."""
    (file,) = [path for path in (DATA / CAR).glob("*.jsonl") if b'"tp":{"rank":0,' in path.read_bytes()][:1]
    return tuple(file.read_bytes().splitlines(keepends=True))


def _survives(content: bytes, asked: Inputs, wished: Wishes) -> None:
    with contextlib.suppress(InputError):
        for run in build(read(["-"], io.BytesIO(content)), alive=unknowable).runs:
            for other in (None, run):
                for against in (None, other):
                    with contextlib.suppress(CannotPlan):
                        made = plan(run, asked, NOTHING if against else wished, like=other, against=against)
                        json.dumps(msgspec.to_builtins(made))
                        assert "\x1b" not in plan_text(made)
            for one, like, against in ((recorded(CAR), run, run), (run, recorded(CAR), None)):
                with contextlib.suppress(CannotPlan):
                    plan_text(plan(one, asked, NOTHING if against else wished, like=like, against=against))


@slow
@given(st.data(), inputs(), wishes)
def test_no_value_in_any_field_makes_a_plan_raise(data: st.DataObject, asked: Inputs, wished: Wishes) -> None:
    events = [json.loads(line) for line in _lines()]
    telling = [event for event in events if any(word in event["event"] for word in TELLING)]
    for _ in range(data.draw(st.integers(1, 4))):
        spoil(data, data.draw(st.sampled_from(telling)), VALUES)

    _survives(b"".join(line_of(event) for event in events), asked, wished)


@slow
@given(st.data(), inputs(), wishes)
def test_no_cut_makes_a_plan_raise(data: st.DataObject, asked: Inputs, wished: Wishes) -> None:
    lines = _lines()

    _survives(b"".join(lines[: data.draw(st.integers(0, len(lines)))]), asked, wished)


SHAPES = st.builds(
    Shape,
    fraction=st.sampled_from([0.1, 0.3, 0.8]),
    unit=st.sampled_from(["bytes", "tokens"]),
    max_total_tokens=st.none() | st.just(1000),
    fail_in=st.sampled_from([None, "weights.load", "kv.profile", "graph.capture"]),
    stop_in=st.sampled_from([None, None, "kv.pool"]),
)


@slow
@given(st.lists(SHAPES, min_size=1, max_size=4), inputs(), wishes)
def test_ranks_that_fail_apart_make_no_plan_raise(shapes: list[Shape], asked: Inputs, wished: Wishes) -> None:
    for run in timeline_of(launch(shapes, Host())).runs:
        with contextlib.suppress(CannotPlan):
            plan_text(plan(run, asked, wished))
