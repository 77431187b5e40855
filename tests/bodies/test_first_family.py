"""CustomAllreduce: the real class of every release, its kernels and its CUDA runtime replaced."""

from __future__ import annotations

import pytest

from tests.bodies.checks import BUFFERS, agrees, alive, sizes, the_end
from tests.bodies.families import FIRST
from tests.bodies.ranks import Ranks

pytestmark = pytest.mark.lane

INIT = "CustomAllreduce.__init__"
SHARED = "CustomAllreduce.create_shared_buffer"
TWO_LIBRARIES = ("0.4.3", "0.4.3.post3", "0.4.4")
"""Here `ops.use_vllm_custom_allreduce` chooses between two branches."""


@pytest.mark.parametrize("release", FIRST.all)
def test_on_cuda_three_buffers_are_what_the_ledger_saw(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("custom_allreduce", release):
        event = the_end(outcome, INIT)
        alive(outcome, event, "CustomAllreduce", "ipc")
        assert set(sizes(event)) == {"meta", "data", "rank_data"}
        agrees(outcome, event)
        assert outcome.inside() == [sizes(event)["rank_data"]]


@pytest.mark.parametrize("release", FIRST.all)
def test_each_shared_buffer_has_an_event_with_its_own_ask(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("custom_allreduce", release):
        shared = outcome.ends(BUFFERS, SHARED)
        whole = sizes(the_end(outcome, INIT))
        assert {event["attributes"]["buffer_kind"]: event["attributes"]["asked_bytes"] for event in shared} == {
            kind: whole[kind] for kind in ("meta", "data")
        }
        assert outcome.outside() == sorted(event["attributes"]["asked_bytes"] for event in shared)


@pytest.mark.parametrize("release", TWO_LIBRARIES)
def test_the_branch_that_tensorrt_llm_inspired_asks_for_four_buffers_and_a_tensor(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("custom_allreduce", release, vllm=False):
        event = the_end(outcome, INIT)
        alive(outcome, event, "CustomAllreduce", "ipc")
        assert set(sizes(event)) == {"data", "tmp_result", "barrier_in", "barrier_out", "rank_data"}
        agrees(outcome, event)
        kinds = [shared["attributes"]["buffer_kind"] for shared in outcome.ends(BUFFERS, SHARED)]
        assert kinds == ["data", "tmp_result", "barrier_in", "barrier_out"]


@pytest.mark.parametrize("release", FIRST.since("0.4.3.post3"))
def test_on_rocm_the_three_buffers_are_tensors_of_which_torch_counts_two(hip: Ranks, release: str) -> None:
    for outcome in hip.run("custom_allreduce", release):
        event = the_end(outcome, INIT)
        alive(outcome, event, "CustomAllreduce", "ipc")
        agrees(outcome, event)
        assert outcome.outside() == [sizes(event)["meta"]]


@pytest.mark.parametrize("release", ["0.5.3", "0.5.3.post2"])
def test_rank_data_follows_the_size_that_was_asked_only_since_it_does(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("custom_allreduce", release, max_size=1 << 22):
        event = the_end(outcome, INIT)
        agrees(outcome, event)
        assert event["attributes"]["max_size_bytes"] == sizes(event)["data"] == 1 << 22
        assert (sizes(event)["rank_data"] == 1 << 22) is (release == "0.5.3.post2")


@pytest.mark.parametrize("release", FIRST.releases)
def test_a_group_over_two_nodes_is_disabled_for_the_reason_that_sglang_logs(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("other_node", release):
        event = the_end(outcome, INIT)
        assert event["attributes"]["disabled"] is True
        assert "spans across nodes" in event["attributes"]["disabled_reason"]
        assert (event["attributes"]["buffers"], event["attributes"]["sharing"]) == ([], None)
        assert outcome.asks == []


@pytest.mark.parametrize("release", FIRST.releases)
def test_without_kernels_it_is_disabled_and_nobody_says_why(cuda: Ranks, release: str) -> None:
    for outcome in cuda.run("custom_allreduce", release, broken=True):
        event = the_end(outcome, INIT)
        assert event["attributes"]["disabled"] is True
        assert "warned of nothing" in event["attributes"]["disabled_reason"]
        assert outcome.asks == []


def test_a_size_that_is_not_what_the_ledger_saw_is_noticed(cuda: Ranks) -> None:
    for outcome in cuda.run("custom_allreduce", FIRST.releases[-1], mutate=4096):
        event = the_end(outcome, INIT)
        with pytest.raises(AssertionError):
            agrees(outcome, event)
