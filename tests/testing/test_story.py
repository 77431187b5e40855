"""The fakes replay the story to the byte: what is free, what fails, and what would have worked."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from sglang_probe.testing import GIB, MIB, RELEASES, FakeServer, Run
from sglang_probe.testing import story as make_story
from sglang_probe.testing.core import allreduce
from sglang_probe.testing.story import (
    AVAILABLE_MINIMUM,
    IDLE_FREE,
    MEM_FRACTION_STATIC,
    POOREST_RANK,
    PRE_LOAD_MINIMUM,
    PRE_LOAD_USUAL,
    RANKS,
    arguments,
)

REFUSAL = {
    "0.5.9": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    f"Current value: self.server_args.mem_fraction_static={MEM_FRACTION_STATIC}",
    "0.5.14": "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.55. "
    "Raise --mem-fraction-static above 0.770 (minimum viable = 1 - available/pre = 0.7692). "
    "If using speculative decoding, draft weights are now counted.",
}
ALLREDUCE = {"0.5.9": 1, "0.5.14": 2}


Replay = Callable[..., Run]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """Replay the story of a release with some flags, once."""

    @cache
    def run(release: str, *flags: str) -> Run:
        directory = tmp_path_factory.mktemp("story")
        return FakeServer(directory, make_story(release), release=release, arguments=flags).run()

    return run


def printed(log: str, what: str) -> dict[int, float]:
    """Return the figure that each rank printed after `what`."""
    return {int(rank): float(figure) for rank, figure in re.findall(rf" TP(\d)\] .*?{what}=([\d.]+) GB", log)}


def test_the_figures_of_the_story_hold_together() -> None:
    assert (94.974, 94.04, 93.999, 21.697) == tuple(
        round(size / GIB, 3) for size in (IDLE_FREE, PRE_LOAD_USUAL, PRE_LOAD_MINIMUM, AVAILABLE_MINIMUM)
    )
    rest = AVAILABLE_MINIMUM / GIB - PRE_LOAD_MINIMUM / GIB * (1 - MEM_FRACTION_STATIC)
    assert -20.603 == round(rest, 3)
    assert 0.7692 == round(1 - AVAILABLE_MINIMUM / PRE_LOAD_MINIMUM, 4)


@pytest.mark.parametrize("release", RELEASES)
def test_an_idle_card_has_the_same_free_by_cuda_and_by_nvml(release: str) -> None:
    card = make_story(release).card
    assert IDLE_FREE == card.cuda_total_bytes == card.nvml_total_bytes - card.nvml_reserved_bytes == 97253 * MIB


@pytest.mark.parametrize("release", RELEASES)
def test_the_server_dies_with_sglangs_own_words(replay: Replay, release: str) -> None:
    run = replay(release, *arguments())
    assert run.returncode == -9, "SGLang's launcher kills its tree, itself included"
    assert REFUSAL[release] in run.log
    assert "Received sigquit from a child process" in run.log


@pytest.mark.parametrize("release", RELEASES)
def test_pre_load_and_available_memory_are_the_storys_on_every_rank(replay: Replay, release: str) -> None:
    run = replay(release, *arguments())
    records = run.gpus.records()
    for rank in range(RANKS):
        labels = ("cuda_context", "communicator", "custom_allreduce")
        (pid,) = {record.pid for record in records if record.gpu == rank}
        taken = run.gpus.taken(gpu=rank, pid=pid)
        before_weights = IDLE_FREE - sum(taken[label].device_bytes for label in labels)
        poorest = rank == POOREST_RANK
        assert (PRE_LOAD_MINIMUM if poorest else PRE_LOAD_USUAL) == before_weights
        after_weights = before_weights - taken["weights_target"].device_bytes
        more = 0 if poorest else PRE_LOAD_USUAL - PRE_LOAD_MINIMUM
        assert AVAILABLE_MINIMUM + more == after_weights


@pytest.mark.parametrize("release", RELEASES)
def test_without_the_custom_all_reduce_it_fails_all_the_same_with_that_much_more(replay: Replay, release: str) -> None:
    run = replay(release, *arguments(disable_custom_all_reduce=True))
    assert run.returncode == -9
    gained = allreduce.device_cost(ALLREDUCE[release], RANKS)
    expected = {rank: PRE_LOAD_MINIMUM if rank == POOREST_RANK else PRE_LOAD_USUAL for rank in range(RANKS)}
    begun = printed(run.log, "Load weight begin. avail mem")
    assert {rank: round((size + gained) / GIB, 2) for rank, size in expected.items()} == begun
    assert not [record for record in run.gpus.records() if record.label == "custom_allreduce"]


@pytest.mark.parametrize("release", RELEASES)
def test_a_fraction_over_the_minimum_starts(replay: Replay, release: str) -> None:
    run = replay(release, *arguments(0.80))
    assert run.returncode == 0
    assert "The server is fired up and ready to roll!" in run.log
    model = make_story(release).model
    cell = ((model.kv_lora_rank or 0) + model.qk_rope_head_dim) * model.layers * 2
    rest = AVAILABLE_MINIMUM / GIB - PRE_LOAD_MINIMUM / GIB * (1 - 0.80)
    assert f"max_total_num_tokens={int(rest * GIB) // cell}," in run.log


def test_ranks_differ_only_in_what_the_poorest_pays_more() -> None:
    scenario = make_story()
    assert [POOREST_RANK] == list(scenario.rank_costs)
    more = scenario.costs_of(POOREST_RANK).communicator_bytes - scenario.costs.communicator_bytes
    assert PRE_LOAD_USUAL - PRE_LOAD_MINIMUM == more
