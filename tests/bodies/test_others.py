"""The other classes that take memory for communication, with the library of each replaced."""

from __future__ import annotations

import pytest

from tests.bodies.checks import agrees, alive, lost, sizes, the_end
from tests.bodies.families import (
    FUSED,
    MSCCLPP,
    MULTIMEM,
    PCIE,
    POOL,
    POOL_METHOD,
    QUICK,
    SYMM_MEM,
    TORCH_SYMM_MEM,
    Family,
)
from tests.bodies.ranks import Ranks

pytestmark = pytest.mark.lane

FUSED_INIT = "FlashInferWorkspaceManager.initialize"
SAYS_ITS_SIZES = "0.5.11"
"""Since then SGLang computes what the workspace will take, before it asks for it."""


@pytest.mark.parametrize("release", QUICK.releases)
@pytest.mark.parametrize("megabytes", [0, 64])
def test_quick_all_reduce_takes_twice_its_largest_message(hip: Ranks, release: str, megabytes: int) -> None:
    for outcome in hip.run("quick", release, megabytes=megabytes):
        event = the_end(outcome, "QuickAllReduce.__init__")
        alive(outcome, event, "QuickAllReduce", "ipc")
        assert sizes(event)["flags"] is None  # only the library knows
        (held,) = outcome.outside()
        data = sizes(event)["data"] or 0
        assert data == event["attributes"]["asked_bytes"] == 2 * event["attributes"]["max_size_bytes"]
        assert 0 < held - data < 1 << 20
        lost(outcome, event)


@pytest.mark.parametrize("release", QUICK.releases)
def test_quick_all_reduce_is_off_unless_a_variable_names_a_format(hip: Ranks, release: str) -> None:
    for outcome in hip.run("quick", release, regime="NONE"):
        event = the_end(outcome, "QuickAllReduce.__init__")
        assert (event["attributes"]["disabled"], event["attributes"]["buffers"]) == (True, [])
        assert outcome.asks == []


@pytest.mark.parametrize(
    ("family", "release"),
    [(family, release) for family in (SYMM_MEM, TORCH_SYMM_MEM) for release in family.releases],
    ids=lambda value: getattr(value, "path", value),
)
def test_the_symmetric_buffer_is_outside_torch_and_what_the_ledger_saw(
    cuda: Ranks, family: Family, release: str
) -> None:
    name = family.path
    for outcome in cuda.run("symmetric", release):
        event = the_end(outcome, f"{name}.__init__")
        said = event["attributes"]
        assert (said["class"], said["world_size"], said["disabled"], said["sharing"]) == (name, 2, False, "vmm")
        assert outcome.inside() == []
        assert said["max_size_bytes"] == sizes(event)["data"]
        agrees(outcome, event)


@pytest.mark.parametrize("release", [*SYMM_MEM.releases, *TORCH_SYMM_MEM.releases])
def test_without_multicast_the_symmetric_buffer_is_given_back_and_the_reason_said(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("symmetric", release, multicast=False):
        (event,) = outcome.ends("allreduce.buffers")
        assert outcome.problem is None
        assert event["attributes"]["disabled"] is True
        assert "multicast" in event["attributes"]["disabled_reason"]
        assert event["attributes"]["buffers"] == []
        assert [ask.live for ask in outcome.asks] == [False]
        lost(outcome, event)


@pytest.mark.parametrize("release", MSCCLPP.releases)
def test_mscclpp_asks_for_what_the_ledger_saw(eight: Ranks, release: str) -> None:
    (outcome,) = eight.run("mscclpp", release)
    event = the_end(outcome, "PyMscclppCommunicator.__init__", "dist.communicator")
    said = event["attributes"]
    assert (said["communicator"], said["group_size"], said["group_rank"], said["disabled"]) == (
        "PyMscclppCommunicator",
        8,
        0,
        False,
    )
    assert said["asked_bytes"] == sum(outcome.outside() + outcome.inside())
    lost(outcome, event)


@pytest.mark.parametrize("release", MSCCLPP.releases)
def test_mscclpp_does_nothing_for_two_ranks(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("mscclpp", release):
        event = the_end(outcome, "PyMscclppCommunicator.__init__", "dist.communicator")
        assert (event["attributes"]["disabled"], event["attributes"]["asked_bytes"]) == (True, None)
        assert outcome.asks == []


@pytest.mark.parametrize("release", FUSED.since(SAYS_ITS_SIZES))
def test_the_fused_workspace_is_what_the_ledger_saw(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("fused", release):
        event = the_end(outcome, FUSED_INIT)
        alive(outcome, event, "FlashInferWorkspaceManager", "vmm")
        assert set(sizes(event)) == {"buffer", "flag", "lamport"}
        agrees(outcome, event)
        tried = [ask.bytes for ask in outcome.asks if ask.how == "cuMemCreate"]
        assert sorted(tried) == outcome.outside()  # SGLang tries the very sizes first, and gives them back


def test_the_fused_workspace_of_0_5_10_says_what_its_library_was_asked_for(cuda: Ranks) -> None:
    for outcome in cuda.run("fused", "0.5.10"):
        event = the_end(outcome, FUSED_INIT)
        asked = sizes(event)
        assert set(asked) == {"buffer", "flag", "lamport"}
        for size, held in zip(sorted(size or 0 for size in asked.values()), outcome.outside(), strict=True):
            assert 0 <= held - size <= 4 << 20  # flashinfer's own rounding
        lost(outcome, event)


def test_the_oldest_fused_workspace_has_no_size_to_read(cuda: Ranks) -> None:
    for outcome in cuda.run("fused", "0.4.9"):
        event = the_end(outcome, FUSED_INIT)
        assert set(sizes(event).values()) == {None}
        assert event["attributes"]["asked_bytes"] is None
        assert event["attributes"]["disabled"] is False
        lost(outcome, event)


@pytest.mark.parametrize("release", PCIE.releases)
def test_the_pcie_workspace_has_its_payload_in_the_event(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("pcie", release, hidden=4096, rows=64):
        event = the_end(outcome, "PcieIpcCommunicator.prepare")
        (held,) = outcome.outside()
        payload = sizes(event)["data"] or 0
        assert (event["attributes"]["class"], event["attributes"]["disabled"]) == ("PcieIpcCommunicator", False)
        assert payload == event["attributes"]["asked_bytes"] == 2 * 4096 * 64
        assert 0 < held - payload < 1 << 20


@pytest.mark.parametrize("release", MULTIMEM.releases)
def test_the_multicast_gather_buffer_is_what_the_ledger_saw(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("multimem", release):
        event = the_end(outcome, "create_state")
        said = event["attributes"]
        assert (said["class"], said["world_size"], said["group_rank"]) == ("MultimemAllGatherer", 2, outcome.rank)
        assert said["sharing"] == "vmm"
        agrees(outcome, event)


@pytest.mark.parametrize(
    ("case", "release", "path"),
    [
        ("symmetric", "0.5.3", "SymmMemCommunicator.__init__"),
        ("fused", "0.5.23", FUSED_INIT),
        ("multimem", "0.5.15", "create_state"),
    ],
)
def test_a_size_that_is_not_what_the_ledger_saw_is_noticed(cuda: Ranks, case: str, release: str, path: str) -> None:
    for outcome in cuda.run(case, release, mutate=512):
        event = the_end(outcome, path)
        with pytest.raises(AssertionError):
            agrees(outcome, event)


@pytest.mark.parametrize("release", [*POOL_METHOD.releases, *POOL.releases])
def test_the_pool_of_nccl_is_what_the_card_lost_though_no_tensor_holds_it(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("nccl_pool", release):
        assert outcome.problem is None, outcome.problem
        (event,) = outcome.ends("allreduce.buffers")
        assert event["attributes"]["target"].endswith("prealloc_symmetric_memory_pool")
        assert [(ask.bytes, ask.live) for ask in outcome.asks] == [(event["attributes"]["asked_bytes"], False)]
        assert outcome.device_bytes == event["attributes"]["asked_bytes"]
        lost(outcome, event)


@pytest.mark.parametrize("release", [*POOL_METHOD.releases, *POOL.releases])
def test_without_the_flag_there_is_no_pool_of_nccl(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("nccl_pool", release, enabled=False):
        (event,) = outcome.ends("allreduce.buffers")
        assert (event["attributes"]["disabled"], event["attributes"]["buffers"]) == (True, [])
        assert outcome.asks == []
