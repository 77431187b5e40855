"""GroupCoordinator and PyNccl: the real classes, libnccl replaced; the coordinator builds the communicators itself."""

from __future__ import annotations

import pytest

from tests.bodies.checks import alive, lost, sizes, the_end
from tests.bodies.families import COORDINATOR, PYNCCL
from tests.bodies.ranks import Ranks

pytestmark = pytest.mark.lane

COMMUNICATOR = "dist.communicator"
GROUP = "tp:0"


@pytest.mark.parametrize("release", PYNCCL.releases)
def test_what_nccl_takes_is_the_delta_of_its_step(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("pynccl", release):
        event = the_end(outcome, "PyNcclCommunicator.__init__", COMMUNICATOR)
        said = event["attributes"]
        assert (said["communicator"], said["group_size"], said["group_rank"]) == ("PyNcclCommunicator", 2, outcome.rank)
        assert said["disabled"] is False
        assert len(outcome.outside()) == 1
        lost(outcome, event)


@pytest.mark.parametrize("release", COORDINATOR.releases)
def test_the_group_of_each_communicator_is_that_of_its_coordinator(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("coordinator", release):
        event = the_end(outcome, "GroupCoordinator.__init__", COMMUNICATOR)
        said = event["attributes"]
        assert (said["group"], said["group_size"], said["group_rank"]) == (GROUP, 2, outcome.rank)
        assert said["backend"] == "gloo"
        lost(outcome, event)
        inside = [one for one in outcome.events if one["kind"] == "end" and one["span"]["parent"]]
        assert len(inside) >= 2
        assert {one["attributes"]["group"] for one in inside} == {GROUP}


@pytest.mark.parametrize("release", COORDINATOR.releases)
def test_the_bytes_of_all_communicators_of_a_group_add_up_to_the_ledger(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("coordinator", release):
        owners = [one for one in outcome.ends("allreduce.buffers") if "buffers" in one["attributes"]]
        asked = sum(one["attributes"]["asked_bytes"] or 0 for one in owners)
        nccl = sum(ask.bytes for ask in outcome.asks if ask.how == "nccl")
        masks = sum(ask.bytes for ask in outcome.asks if ask.live and ask.how == "torch" and ask.bytes == 8)
        assert asked + nccl + masks == sum(outcome.outside() + outcome.inside())
        (family,) = (one for one in owners if one["attributes"]["class"].startswith("CustomAll"))
        alive(outcome, family, family["attributes"]["class"], family["attributes"]["sharing"], GROUP)
        assert None not in sizes(family).values()


@pytest.mark.parametrize("release", COORDINATOR.since("0.4.9.post4"))
def test_on_rocm_a_group_holds_both_custom_and_quick_all_reduce(hip: Ranks, release: str) -> None:
    for outcome in hip.run("rocm_coordinator", release):
        event = the_end(outcome, "GroupCoordinator.__init__", COMMUNICATOR)
        lost(outcome, event)
        owners = {one["attributes"]["class"]: one["attributes"] for one in outcome.ends("allreduce.buffers")}
        assert set(owners) == {"CustomAllreduce", "QuickAllReduce"}
        assert [owner["group"] for owner in owners.values()] == [GROUP, GROUP]
        assert [owner["disabled"] for owner in owners.values()] == [False, False]
        assert owners["QuickAllReduce"]["asked_bytes"] == 2 * 64 << 20
