"""Steps: their order, nesting and figures; what each cost by itself adds up to what all cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.timeline.deltas import shares
from sglang_probe.timeline.model import Step
from tests.collect.building import GIB, Host, Writer
from tests.collect.starting import Shape, launch
from tests.timeline.making import phases, ranks, run_of, step


def _rank(shape: Shape | None = None) -> tuple[Step, ...]:
    return ranks(run_of(launch([shape or Shape()])))[0].steps


def test_steps_stand_in_the_order_in_which_they_began_each_inside_its_parent() -> None:
    assert [
        (0, "scheduler.init"),
        (1, "dist.init"),
        (2, "dist.communicator"),
        (2, "allreduce.buffers"),
        (1, "weights.load"),
        (1, "kv.pool"),
        (2, "kv.profile"),
        (2, "kv.pool"),
        (1, "attention.init"),
        (1, "graph.capture"),
    ] == phases(_rank())


def test_a_step_has_its_cost_its_free_memory_and_its_duration() -> None:
    shape = Shape(weights=5 * GIB)
    weights = next(one for one in _rank(shape) if one.phase == "weights.load")

    assert shape.weights == weights.cost_bytes == -(weights.delta_bytes or 0)
    assert weights.free_before_bytes is not None
    assert weights.free_before_bytes - shape.weights == weights.free_bytes
    assert weights.duration_s is not None
    assert weights.duration_s > 0


def test_a_parent_counts_by_itself_only_what_its_children_did_not_take() -> None:
    shape = Shape()
    init = next(one for one in _rank(shape) if one.phase == "dist.init")

    assert shape.communicator + shape.allreduce == init.cost_bytes
    assert 0 == init.self_delta_bytes


def test_the_shares_of_all_steps_add_up_to_the_root() -> None:
    steps = _rank()

    assert steps[0].delta_bytes == sum(one.self_delta_bytes or 0 for one in steps)


def test_a_reading_that_failed_is_unknown_and_says_why() -> None:
    writer = Writer(Host(), 7, start_ticks=1, role="scheduler", free=None)
    writer.start()
    with writer.step("weights.load"):
        pass
    writer.events[-1]["degraded"] = [{"source": "cuda", "reason": "no_context", "detail": "device 0"}]

    (weights,) = run_of([writer]).processes[0].steps

    assert (None, None, None, None) == (
        weights.free_bytes, weights.delta_bytes, weights.self_delta_bytes, weights.cost_bytes
    )
    assert "cuda: no_context (device 0)" == weights.null_reason


def test_a_cost_that_could_not_be_read_is_inside_the_step_around_it() -> None:
    writer = Writer(Host(), 7, start_ticks=1, role="scheduler")
    writer.start()
    with writer.step("dist.init", cost=GIB), writer.step("dist.communicator"):
        free, writer.free = writer.free, None
    writer.free = free
    writer.events[-1]["after"]["device_free_bytes"] = (free or 0) - GIB

    outer, inner = run_of([writer]).processes[0].steps

    assert (-GIB, (inner.id,)) == (outer.self_delta_bytes, outer.self_includes)
    assert inner.self_delta_bytes is None


def test_a_reading_of_the_wrong_type_is_unknown_and_counted() -> None:
    launcher, rank = launch([Shape()])
    ended = next(one for one in rank.events if one["event"] == "sglang.memory.weights.load.end")
    ended["after"]["device_free_bytes"] = "plenty"

    weights = step(ranks(run_of([launcher, rank]))[0], "weights.load")

    assert weights.delta_bytes is None
    assert "reader: unreadable_part (after)" == weights.null_reason


def test_what_tells_siblings_apart_is_their_detail() -> None:
    steps = _rank()

    assert ["all", "request"] == [one.detail for one in steps if one.phase == "kv.pool"]
    assert ["CustomAllreduce"] == [one.detail for one in steps if one.phase == "allreduce.buffers"]
    assert ["Llama"] == [one.detail for one in steps if one.phase == "weights.load"]
    assert ["decode"] == [one.detail for one in steps if one.phase == "graph.capture"]


def test_the_worked_example_of_shares() -> None:
    quarter = GIB // 4
    parents = {"init": None, "world": "init", "pair": "world"}

    known = shares(parents, {"init": -4 * quarter, "world": -3 * quarter, "pair": -quarter})
    gap = shares(parents, {"init": -4 * quarter, "world": None, "pair": -quarter})

    assert [-quarter, -2 * quarter, -quarter] == [known[name].self_delta for name in parents]
    assert [-3 * quarter, None, -quarter] == [gap[name].self_delta for name in parents]
    assert ("world",) == gap["init"].includes


@st.composite
def _trees(draw: st.DrawFn) -> tuple[dict[str, str | None], dict[str, int | None]]:
    count = draw(st.integers(1, 12))
    parents: dict[str, str | None] = {"0": None}
    for index in range(1, count):
        parents[str(index)] = str(draw(st.integers(0, index - 1)))
    sizes = st.one_of(st.none(), st.integers(-(1 << 40), 1 << 40))
    deltas = {name: draw(sizes) for name in parents}
    deltas["0"] = draw(st.integers(-(1 << 40), 1 << 40))
    return parents, deltas


@given(_trees())
def test_shares_readd_to_the_delta_of_every_step_that_is_known(
    tree: tuple[dict[str, str | None], dict[str, int | None]],
) -> None:
    parents, deltas = tree
    found = shares(parents, deltas)

    for top, delta in deltas.items():
        inside = [name for name in parents if top in _chain(name, parents)]
        if delta is not None:
            assert delta == sum(found[name].self_delta or 0 for name in inside)


def _chain(name: str | None, parents: dict[str, str | None]) -> list[str]:
    chain: list[str] = []
    while name is not None:
        chain.append(name)
        name = parents[name]
    return chain


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, *"abcdefgh"]), min_size=1))
def test_parents_that_are_missing_or_form_a_circle_lose_no_step(parents: dict[str, str | None]) -> None:
    found = shares(parents, dict.fromkeys(parents, 1))

    assert parents.keys() == found.keys()
    roots = [name for name in parents if found[name].depth == 0]
    assert len(roots) == sum(share.self_delta or 0 for share in found.values())


@pytest.mark.parametrize("seconds", [0.001, 2.5])
def test_a_duration_comes_from_the_monotonic_clock(seconds: float) -> None:
    writer = Writer(Host(), 7, start_ticks=1, role="scheduler")
    writer.start()
    with writer.step("weights.load", lasts=int(seconds * 1e9)):
        writer.host.ahead_ns -= 3_600_000_000_000  # somebody sets the wall clock back

    (weights,) = run_of([writer]).processes[0].steps

    assert seconds == pytest.approx(weights.duration_s, abs=0.01)
