"""Where each number comes from: given, measured, scaled by a rule, assumed, or unknown with its reason."""

from __future__ import annotations

import msgspec
import pytest

from sglang_probe.explain.levers import APART, levers_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Plan
from sglang_probe.explain.scaling import RULES
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib
from sglang_probe.timeline.model import Device, Neighbour, Pool, Run
from tests.explain.plan.making import CAR, GIB, MIB, known, made_run, recorded, recordings, value


def basis(made: Plan, name: str) -> tuple[str, str | None]:
    number = made.number(name)
    assert number is not None
    return number.basis, number.rule


def changed(run: Run, **more: object) -> Run:
    """Return a run whose one process differs."""
    (process,) = run.processes
    return msgspec.structs.replace(run, processes=(msgspec.structs.replace(process, **more),))


@pytest.mark.parametrize(
    ("asked", "name", "expected"),
    [
        (Inputs(mem_fraction_static=0.7), "mem_fraction_static", ("given", None)),
        (Inputs(mem_fraction_static=0.7), "tokens", ("scaled", "formula")),
        (Inputs(mem_fraction_static=0.7), "weights_bytes", ("measured", None)),
        (Inputs(mem_fraction_static=0.7), "kv_pool_bytes", ("scaled", "pool")),
        (Inputs(tp=4), "weights_bytes", ("scaled", "weights_tp")),
        (Inputs(tp=4), "bytes_per_token", ("scaled", "token_tp")),
        (Inputs(tp=4, kv_heads=8), "bytes_per_token", ("scaled", "token_heads")),
        (Inputs(tp=4), "communicators_bytes", ("assumed", "as_measured")),
        (Inputs(tp=1), "communicators_bytes", ("scaled", "alone")),
        (Inputs(tp=1), "custom_allreduce_bytes", ("scaled", "alone")),
        (Inputs(quantization="fp8"), "weights_bytes", ("scaled", "quantization")),
        (Inputs(cuda_graph_max_bs=64), "graphs_bytes", ("scaled", "graphs")),
        (Inputs(cuda_graph_max_bs=64), "attention_bytes", ("assumed", "as_measured")),
        (Inputs(context_length=2048), "context_length", ("given", None)),
        (Inputs(context_length=2048), "request_pool_bytes", ("scaled", "request_pool")),
        (Inputs(custom_all_reduce=False), "custom_allreduce_bytes", ("scaled", "given_back")),
        (Inputs(chunked_prefill_size=4096), "activations_bytes", ("assumed", "activations")),
    ],
)
def test_a_number_has_the_basis_of_what_moves_it(asked: Inputs, name: str, expected: tuple[str, str | None]) -> None:
    assert expected == basis(plan(recorded(CAR), asked), name)


def test_each_rule_that_is_used_is_said_in_words() -> None:
    made = plan(recorded(CAR), Inputs(tp=4, quantization="fp8", cuda_graph_max_bs=64, chunked_prefill_size=4096))

    for rule in ("weights_tp", "quantization", "token_tp", "graphs", "default", "as_measured"):
        assert any(said.startswith(f"{RULES[rule].title}: {RULES[rule].says}") for said in made.assumptions), rule


def test_serving_is_said_not_to_have_been_measured() -> None:
    assert "not measured at start-up" in plan(recorded(CAR)).assumptions[0]


def test_quantized_weights_are_smaller_and_what_they_free_is_the_caches() -> None:
    run = made_run(weights=20 * GIB)
    made = plan(run, Inputs(quantization="fp8"))

    assert 10 * GIB == value(made, "weights_bytes")
    assert 10 * GIB == known(made, "rest_bytes") - known(plan(run), "rest_bytes")


@pytest.mark.parametrize("beside", [0, 105 * MIB, 2 * GIB])
def test_what_a_load_took_beside_torchs_weights_is_not_quantized(beside: int) -> None:
    run = made_run(weights=20 * GIB, worker={"weights_torch_bytes": 20 * GIB - beside})
    made = plan(run, Inputs(quantization="fp8"))

    assert (20 * GIB - beside) // 2 + beside == value(made, "weights_bytes")
    said = [one for one in made.assumptions if f"{gib(beside)} GiB that their load took beside stay" in one]
    assert bool(beside) == bool(said)


@pytest.mark.parametrize("name", [name for name in recordings() if recorded(name).failed_phase == "kv.profile"])
def test_quantized_weights_gain_what_explain_says(name: str) -> None:
    subject = Subject(recorded(name))
    assert subject.tightest is not None
    theirs = {one.flag: one for one in levers_of(subject, subject.tightest, None)}["--quantization"]
    made = plan(recorded(name), Inputs(quantization=theirs.value))
    gain = known(plan(recorded(name)), "weights_bytes") - known(made, "weights_bytes")

    assert theirs.gain_bytes == pytest.approx(gain, abs=1)


@pytest.mark.parametrize("beside", [105 * MIB, 2 * GIB])
def test_others_memory_that_moved_while_the_weights_were_loaded_is_not_split(beside: int) -> None:
    run = made_run(weights=20 * GIB, worker={"weights_torch_bytes": 20 * GIB - beside})
    split = 20 * GIB if beside <= APART else 20 * GIB - beside  # as explain has it

    assert split // 2 + 20 * GIB - split == value(plan(run, Inputs(tp=4)), "weights_bytes")


def test_latent_attention_keeps_its_bytes_whatever_the_tp() -> None:
    run = made_run()
    (process,) = run.processes
    (worker,) = process.workers
    assert worker.kv is not None
    pools = tuple(msgspec.structs.replace(pool, kind="MLA") if pool.kind == "MHA" else pool for pool in worker.kv.pools)
    mla = changed(run, workers=(msgspec.structs.replace(worker, kv=msgspec.structs.replace(worker.kv, pools=pools)),))

    assert ("measured", "token_mla") == basis(plan(mla, Inputs(tp=4)), "bytes_per_token")
    assert value(plan(run), "bytes_per_token") == value(plan(mla, Inputs(tp=4)), "bytes_per_token")


def test_a_pool_of_its_own_kind_has_no_rule_for_another_type() -> None:
    run = made_run()
    (process,) = run.processes
    (worker,) = process.workers
    assert worker.kv is not None
    pools = (Pool(kind="MLA", pool_class="NSATokenToKVPool", tokens=worker.kv.tokens, bytes=1 << 30, dtype="bfloat16"),)
    sparse = changed(
        run, workers=(msgspec.structs.replace(worker, kv=msgspec.structs.replace(worker.kv, pools=pools)),)
    )
    made = plan(sparse, Inputs(kv_cache_dtype="fp8_e4m3"))

    assert ("unknown", None) == basis(made, "bytes_per_token")
    assert "have no rule for this model's pool" in made.says[0]


def test_others_on_the_card_are_given_back_rank_by_rank() -> None:
    tenant = Neighbour(pid=114880, kind="foreign", bytes=20 * GIB, peak_bytes=20 * GIB)
    run = changed(made_run(), neighbours=(tenant,))
    before, made = plan(run), plan(run, Inputs(tenants={}))

    assert 20 * GIB == value(before, "tenants_bytes")
    for name in ("pre_load_bytes", "available_bytes"):
        assert 20 * GIB == known(made, name) - known(before, name)
    assert 0 == value(made, "tenants_bytes")


def test_others_that_are_gone_since_are_said_to_be_in_it_still() -> None:
    tenant = Neighbour(pid=114880, kind="foreign", bytes=20 * GIB, gone=True)
    made = plan(changed(made_run(), neighbours=(tenant,)))

    assert any("gone since" in said for said in made.assumptions)


def test_on_a_cpu_the_costs_are_said_to_be_the_hosts() -> None:
    made = plan(changed(made_run(), device=Device(index=0, kind="cpu")), Inputs(mem_fraction_static=0.9))

    assert value(made, "tokens")
    assert any("the device is a CPU" in said for said in made.assumptions)


def test_a_cap_caps_and_the_plan_says_what_memory_alone_would_allow() -> None:
    run = made_run()
    made = plan(run, Inputs(max_total_tokens=1000, page_size=16))

    assert 1000 // 16 * 16 == value(made, "tokens")
    assert "Memory alone would allow" in made.says[0]


def test_a_wish_beyond_the_slots_for_requests_does_not_hold() -> None:
    made = plan(recorded(CAR), Inputs(max_running_requests=8), Wishes(concurrency=9))

    assert [False] == [wish.holds for wish in made.wishes]
    assert 8 == value(made, "concurrency")


def test_the_custom_all_reduce_gives_its_cost_times_the_fraction() -> None:
    run = made_run(fraction=0.8)
    gain = known(plan(run, Inputs(custom_all_reduce=False)), "rest_bytes") - known(plan(run), "rest_bytes")

    assert gain == pytest.approx(34 * MIB * 0.8, abs=1024)
