"""The graph entries of every release: the real functions, taken out of their file, on a fake model runner."""

from __future__ import annotations

import pytest

from tests.bodies.checks import lost, the_end
from tests.bodies.families import (
    DECODE_METHOD,
    DECODE_SETUP,
    DEVICE_GRAPHS,
    EAGLE,
    EAGLE_V2,
    GRAPHS,
    PIECEWISE,
    PREFILL_METHOD,
    PREFILL_SETUP,
    Family,
)
from tests.bodies.ranks import Outcome, Ranks

pytestmark = pytest.mark.lane

ROLE = "graph.capture"
ALL_IN_ONE = ("0.4.3", "0.4.3.post3", "0.4.5.post1", "0.4.6.post1", "0.4.6.post5", "0.4.9")
"""Here `init_cuda_graphs` captures by itself; since 0.5.14 it calls the methods for decode and prefill."""
OWN = "0.5.16"
"""Since then the methods hand over to functions of a module of their own, and those are hooked."""


def _cases(*families: tuple[Family, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(family.path, release) for family, releases in families for release in releases]


def _event(outcome: Outcome, entry: str) -> dict[str, object]:
    event = the_end(outcome, entry, ROLE)
    lost(outcome, event)
    said: dict[str, object] = event["attributes"]
    return said


DECODE = _cases(
    (GRAPHS, ALL_IN_ONE),
    (DEVICE_GRAPHS, DEVICE_GRAPHS.releases),
    (DECODE_METHOD, ("0.5.14", "0.5.15")),
    (DECODE_SETUP, DECODE_SETUP.releases),
)
PREFILL = _cases(
    (PIECEWISE, PIECEWISE.releases), (PREFILL_METHOD, ("0.5.14",)), (PREFILL_SETUP, PREFILL_SETUP.releases)
)


@pytest.mark.parametrize(("entry", "release"), DECODE)
def test_decode_graphs_say_their_sizes_and_cost_what_the_ledger_saw(cuda: Ranks, entry: str, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=entry):
        said = _event(outcome, entry)
        assert (said["graph"], said["captured"], said["sizes"]) == ("decode", True, [1, 2, 4, 8])
        assert said["runner_class"] in ("CudaGraphRunner", "DecodeCudaGraphRunner")
        assert said["private_pool_bytes"] == outcome.private_pools


@pytest.mark.parametrize(("entry", "release"), DECODE)
def test_decode_graphs_that_are_off_are_said_to_be_off(cuda: Ranks, entry: str, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=entry, off=True):
        said = _event(outcome, entry)
        assert (said["graph"], said["captured"], said["sizes"]) == ("decode", False, None)
        assert outcome.asks == []


@pytest.mark.parametrize(("entry", "release"), PREFILL)
def test_prefill_graphs_say_their_sizes_and_cost_what_the_ledger_saw(cuda: Ranks, entry: str, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=entry):
        said = _event(outcome, entry)
        assert (said["graph"], said["captured"], said["sizes"]) == ("prefill", True, [1, 2, 4, 8])
        assert said["runner_class"] in ("PiecewiseCudaGraphRunner", "PrefillCudaGraphRunner")


@pytest.mark.parametrize(("entry", "release"), PREFILL)
def test_prefill_graphs_that_are_off_are_said_to_be_off(cuda: Ranks, entry: str, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=entry, off=True):
        said = _event(outcome, entry)
        assert (said["graph"], said["captured"]) == ("prefill", False)
        assert outcome.asks == []


@pytest.mark.parametrize("release", [release for release in GRAPHS.releases if release not in ALL_IN_ONE])
def test_the_entry_of_all_graphs_holds_the_spans_of_both_kinds(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=GRAPHS.path):
        event = the_end(outcome, GRAPHS.path, ROLE)
        assert event["attributes"]["graph"] == "all"
        lost(outcome, event)
        inside = [one for one in outcome.ends(ROLE) if one["span"]["parent"] == event["span"]["id"]]
        assert sorted(one["attributes"]["graph"] for one in inside) == ["decode", "prefill"]
        assert sum(one["delta"]["device_free_bytes"] for one in inside) == -outcome.device_bytes


@pytest.mark.parametrize("release", DECODE_METHOD.since(OWN))
def test_a_method_that_hands_over_to_a_hooked_function_is_no_second_span(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=DECODE_METHOD.path):
        assert outcome.problem is None, outcome.problem
        (event,) = outcome.ends(ROLE)
        assert event["attributes"]["target"].endswith(":capture_decode_graph")


@pytest.mark.parametrize("release", PREFILL_METHOD.since(OWN))
def test_the_method_for_prefill_graphs_is_no_second_span_either(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("graphs", release, entry=PREFILL_METHOD.path):
        assert outcome.problem is None, outcome.problem
        (event,) = outcome.ends(ROLE)
        assert event["attributes"]["target"].endswith(":capture_prefill_graph")


def test_a_capture_that_takes_other_bytes_than_the_ledger_saw_is_noticed(cuda: Ranks) -> None:
    for outcome in cuda.run("graphs", "0.5.23", entry="capture_decode_graph"):
        event = the_end(outcome, "capture_decode_graph", ROLE)
        outcome.device_bytes += 512
        with pytest.raises(AssertionError):
            lost(outcome, event)


@pytest.mark.parametrize(
    ("family", "release"),
    [(family, release) for family in (EAGLE, EAGLE_V2) for release in family.releases],
    ids=lambda value: getattr(value, "path", value),
)
@pytest.mark.parametrize("off", [False, True])
def test_a_draft_s_own_graphs_are_the_draft_s(cuda: Ranks, family: Family, release: str, off: bool) -> None:
    cls = family.path.partition(".")[0]
    for outcome in cuda.run("draft_graphs", release, module=family.module, cls=cls, off=off):
        event = the_end(outcome, family.path, ROLE)
        lost(outcome, event)
        said = event["attributes"]
        assert (event["worker"], said["graph"], said["captured"]) == ("draft", "draft", not off)
        assert said["sizes"] == (None if off else [1, 2, 4, 8])
        assert (len(outcome.asks) > 0) is not off
