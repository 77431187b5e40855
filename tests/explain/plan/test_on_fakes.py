"""What a plan says of a fake server started with other flags is what that server then has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sglang_probe.collect import read
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Against
from sglang_probe.testing import RELEASES, FakeServer, Scenario
from sglang_probe.testing.core.scenario import MIB, Model
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run

EAGLE = ("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "draft")
HYBRID = Model(layers=4, mamba_layers=3, mamba_cache_per_req_bytes=20 * MIB)
KINDS = {
    "MLA": Model(kv_lora_rank=512),
    "sparse MLA": Model(kv_lora_rank=512, sparse_attention=True),
    "sliding window": Model(swa_layers=8),
}
NEAR = 32 * MIB
"""The fakes' allocators keep no list of pages."""

Start = Callable[..., Run]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Start:
    """Run a fake server to its end, once for each set of arguments."""

    @cache
    def run(release: str, *flags: str, model: Model | None = None) -> Run:
        directory = tmp_path_factory.mktemp("planned")
        FakeServer(
            directory,
            Scenario(gpus=2, serve=False, model=model or Model()),
            release=release,
            arguments=["--tp", "2", *flags],
            pythonpath=[root],
            environment={"SGLANG_PROBE_DIR": str(directory / "runs")},
        ).run()
        (found,) = build(read([directory / "runs"])).runs
        return found

    return run


def held_against(one: Run, other: Run) -> dict[str, Against]:
    return {row.name: row for row in plan(one, against=other).against}


FLAGS = [
    ("--mem-fraction-static", "0.7"),
    ("--page-size", "16"),
    ("--max-total-tokens", "100000"),
    ("--max-running-requests", "300"),
    ("--context-length", "4096"),
    ("--kv-cache-dtype", "fp8_e5m2"),
    ("--disable-custom-all-reduce",),
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: flags[0])
@pytest.mark.parametrize("release", RELEASES)
def test_one_flag_gives_the_planned_tokens_and_head_room(start: Start, release: str, flags: tuple[str, ...]) -> None:
    rows = held_against(start(release), start(release, *flags))

    for name in ("rest_bytes", "tokens", "bytes_per_token", "max_running_requests", "concurrency"):
        assert rows[name].measured == rows[name].predicted, name
    assert rows["free_bytes"].predicted == pytest.approx(rows["free_bytes"].measured, abs=NEAR)


@pytest.mark.parametrize("release", RELEASES)
def test_without_its_draft_a_server_has_the_planned_tokens(start: Start, release: str) -> None:
    rows = held_against(start(release, *EAGLE), start(release))

    for name in ("available_bytes", "rest_bytes", "bytes_per_token", "tokens", "draft_weights_bytes"):
        assert rows[name].measured == rows[name].predicted, name


@pytest.mark.parametrize("release", RELEASES)
def test_a_draft_that_was_never_measured_is_said_to_be_missing(start: Start, release: str) -> None:
    made = plan(start(release), against=start(release, *EAGLE))

    assert any("a draft model was not measured in this run" in said for said in made.assumptions)


@pytest.mark.parametrize("release", RELEASES)
def test_recurrent_state_scales_with_the_rest_to_within_a_request(start: Start, release: str) -> None:
    one = start(release, model=HYBRID)
    rows = held_against(one, start(release, "--mem-fraction-static", "0.6", model=HYBRID))

    assert plan(one).replays
    error = rows["deductions.mamba"].error
    assert error is not None
    assert abs(error) <= HYBRID.mamba_cache_per_req_bytes
    assert rows["rest_bytes"].error == -error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", RELEASES)
def test_each_kind_of_pool_has_the_planned_tokens_at_another_fraction(start: Start, release: str, kind: str) -> None:
    one = start(release, model=KINDS[kind])
    rows = held_against(one, start(release, "--mem-fraction-static", "0.6", model=KINDS[kind]))

    assert plan(one).replays
    assert rows["tokens"].predicted == pytest.approx(rows["tokens"].measured, abs=1)
    assert rows["free_bytes"].predicted == pytest.approx(rows["free_bytes"].measured, abs=NEAR)


@pytest.mark.parametrize("kind", ["MLA", "sparse MLA"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_latent_cache_is_as_large_on_one_rank(start: Start, release: str, kind: str) -> None:
    rows = held_against(start(release, model=KINDS[kind]), start(release, "--tp", "1", model=KINDS[kind]))

    assert 0 == rows["bytes_per_token"].error


@pytest.mark.parametrize("release", RELEASES)
def test_the_models_own_context_length_is_unknown_to_a_run_that_was_given_another(start: Start, release: str) -> None:
    made = plan(start(release, "--context-length", "4096"), against=start(release))
    context = made.number("context_length")

    assert context is not None
    assert context.planned is None
    assert "the run was given another" in (context.says or "")
