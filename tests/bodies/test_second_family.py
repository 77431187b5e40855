"""CustomAllReduceV2: the real class of every release, its C++ object or torch's symmetric memory replaced."""

from __future__ import annotations

import pytest

from tests.bodies.checks import agrees, alive, sizes, the_end
from tests.bodies.families import SECOND
from tests.bodies.ranks import Ranks

pytestmark = pytest.mark.lane

INIT = "CustomAllReduceV2.__init__"
GROWN = "CustomAllReduceV2.reserve_push_capacity"
FIRST_SYMMETRIC = "0.5.16"
IN_CPP = (*SECOND.releases[: SECOND.releases.index(FIRST_SYMMETRIC)], "0.5.10.post1", "0.5.12.post1")
SYMMETRIC = (*SECOND.since(FIRST_SYMMETRIC), "0.5.18")


@pytest.mark.parametrize("release", IN_CPP)
def test_the_one_allocation_in_cpp_is_the_sum_of_the_buffers(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("second_family", release):
        event = the_end(outcome, INIT)
        alive(outcome, event, "CustomAllReduceV2", "ipc")
        assert set(sizes(event)) == {"pull", "push", "signals", "graph_params"}
        agrees(outcome, event, in_one=True)


@pytest.mark.parametrize("release", ["0.5.11", "0.5.14", "0.5.15"])
@pytest.mark.parametrize("blocks", [{"max_pull_blocks": 8, "max_push_blocks": 5}, {"max_push_blocks": 7}])
def test_blocks_that_were_given_are_counted(cuda: Ranks, release: str, blocks: dict[str, int]) -> None:
    for outcome in cuda.run("second_family", release, max_pull_size=1 << 20, max_push_size=1 << 19, **blocks):
        agrees(outcome, the_end(outcome, INIT), in_one=True)


@pytest.mark.parametrize("release", SYMMETRIC)
def test_the_symmetric_slab_and_its_tensors_are_what_the_ledger_saw(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("second_family", release):
        event = the_end(outcome, INIT)
        alive(outcome, event, "CustomAllReduceV2", "vmm")
        by_kind = sizes(event)
        assert set(by_kind) == {"pull", "push", "signals", "graph_params", "push_counter"}
        assert outcome.outside() == [sum(by_kind[kind] or 0 for kind in ("pull", "push", "signals"))]
        assert outcome.inside() == sorted(by_kind[kind] or 0 for kind in ("graph_params", "push_counter"))
        assert event["attributes"]["asked_bytes"] == sum(outcome.outside() + outcome.inside())
        assert event["delta"]["device_free_bytes"] == -outcome.device_bytes


@pytest.mark.parametrize("release", SECOND.since("0.5.19"))
def test_an_instance_without_the_pull_half_has_no_bytes_for_it(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("second_family", release, max_pull_size=0, max_push_size=1 << 20):
        event = the_end(outcome, INIT)
        assert (sizes(event)["pull"], sizes(event)["signals"]) == (0, 0)
        assert outcome.outside() == [sizes(event)["push"]]


def test_growing_is_an_event_of_its_own_with_the_new_slab(cuda: Ranks) -> None:
    for outcome in cuda.run("second_family", "0.5.23", grow_to=20_000_000):
        before, after = sizes(the_end(outcome, INIT)), sizes(the_end(outcome, GROWN))
        assert outcome.outside() == [sum(after[kind] or 0 for kind in ("pull", "push", "signals"))]
        assert (after["push"] or 0) > (before["push"] or 0)


def test_a_capacity_that_is_there_already_allocates_nothing(cuda: Ranks) -> None:
    for outcome in cuda.run("second_family", "0.5.23", grow_to=4096):
        event = the_end(outcome, GROWN)
        assert (event["attributes"]["buffers"], event["attributes"]["asked_bytes"]) == ([], None)
        assert event["delta"]["device_free_bytes"] == 0


@pytest.mark.parametrize("release", SECOND.releases)
def test_a_group_over_two_nodes_is_disabled(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("other_node", release, name="custom_all_reduce_v2", cls="CustomAllReduceV2"):
        event = the_end(outcome, INIT)
        assert (event["attributes"]["disabled"], event["attributes"]["buffers"]) == (True, [])
        assert event["attributes"]["disabled_reason"]
        assert outcome.outside() == []


@pytest.mark.parametrize("release", ["0.5.10", "0.5.14"])
def test_a_size_that_is_not_what_the_ledger_saw_is_noticed(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("second_family", release, mutate=-128):
        event = the_end(outcome, INIT)
        with pytest.raises(AssertionError):
            agrees(outcome, event, in_one=True)
