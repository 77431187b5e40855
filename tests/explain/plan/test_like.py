"""What a run never measured, taken from another: scaled to this run's own settings, and only of the same server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import CannotPlan, Plan
from sglang_probe.explain.scaling import capture_sizes
from sglang_probe.timeline.model import Neighbour, Run, Step
from tests.explain.explaining import rank
from tests.explain.plan.making import CAR, GIB, known, made_run, recorded, value
from tests.explain.test_others import seen
from tests.timeline.building import gib

EXPERIMENTS, FAILURES = "h200-x2-sglang-0.5.14-experiments", "h200-x2-sglang-0.5.14-failures"
LOWFRAC = "h200-x2-sglang-0.5.14/lowfrac"
SIZE = f"{EXPERIMENTS}/oom-capture-size"


def number(made: Plan, name: str) -> Any:
    found = made.number(name)
    assert found is not None, name
    return found


def test_graphs_are_scaled_to_the_batch_sizes_of_this_run_and_the_recorded_failure_is_foreseen() -> None:
    made = plan(recorded(SIZE), like=recorded(f"{EXPERIMENTS}/car"))
    graphs = facts_of(recorded(f"{EXPERIMENTS}/car")).after.graphs_bytes
    sizes = len(capture_sizes(512))

    assert graphs is not None
    assert graphs * sizes // 4 == value(made, "graphs_bytes")
    assert ("scaled", "graphs") == (number(made, "graphs_bytes").basis, number(made, "graphs_bytes").rule)
    assert made.starts is False
    assert "graph.capture" == recorded(SIZE).failed_phase
    assert any(f"scaled to the {sizes} batch sizes up to 512" in said for said in made.assumptions)


def test_what_this_run_measured_itself_stays_in_its_column_and_what_it_did_not_is_unknown_there() -> None:
    alone, made = plan(recorded(SIZE)), plan(recorded(SIZE), like=recorded(f"{EXPERIMENTS}/car"))

    for name in ("tokens", "concurrency", "kv_pool_bytes", "request_pool_bytes", "max_running_requests"):
        assert number(alone, name).run == number(made, name).run == number(made, name).planned is not None
        assert "measured" == number(made, name).basis
    assert "measured" == number(made, "attention_bytes").basis
    for name in ("graphs_bytes", "else_after_bytes", "free_bytes", "spare_bytes"):
        assert number(made, name).run is None


def test_the_request_pool_is_as_wide_as_this_runs_context_length() -> None:
    short = f"{EXPERIMENTS}/context"
    run = recorded(LOWFRAC)
    asked = {**(run.provenance.effective or {}), "context_length": 4096}
    run = msgspec.structs.replace(run, provenance=msgspec.structs.replace(run.provenance, effective=asked))
    made = plan(run, Inputs(mem_fraction_static=0.909), like=recorded(CAR))

    assert 4096 == value(made, "context_length")
    assert number(plan(recorded(short)), "request_pool_bytes").run == value(made, "request_pool_bytes")


def test_another_runs_context_length_is_not_the_models_own() -> None:
    made = plan(recorded(LOWFRAC), Inputs(mem_fraction_static=0.909), like=recorded(f"{EXPERIMENTS}/context"))

    assert value(made, "context_length") is None


@pytest.mark.parametrize(
    ("settings", "attributes", "says"),
    [
        ({"model_path": "/models/other"}, {}, "has --model-path /models/other"),
        ({}, {"model_class": "OtherForCausalLM"}, "has a model of class OtherForCausalLM"),
        ({"tp_size": 4}, {}, "has --tp 4, and lowfrac 2"),
        ({"kv_cache_dtype": "fp8_e4m3"}, {}, "has KV dtype float8_e4m3, and lowfrac bfloat16"),
        ({}, {"dtype": "torch.float16"}, "has weights of type float16, and lowfrac bfloat16"),
        ({}, {"quantization": "fp8"}, "has --quantization fp8, and lowfrac none"),
        ({"speculative_algorithm": "EAGLE"}, {}, "has --speculative-algorithm EAGLE, and lowfrac none"),
    ],
)
def test_a_run_of_another_server_is_refused_in_one_line(
    settings: dict[str, Any], attributes: dict[str, Any], says: str
) -> None:
    like = recorded(LOWFRAC)
    effective = {**(like.provenance.effective or {}), **settings}
    like = msgspec.structs.replace(like, provenance=msgspec.structs.replace(like.provenance, effective=effective))

    with pytest.raises(CannotPlan, match=says) as caught:
        plan(recorded(LOWFRAC), like=_loaded(like, attributes))

    assert "name a run of the same model that has the same, or leave --like out and give --token-bytes N" in str(
        caught.value
    )


def _loaded(run: Run, attributes: dict[str, Any]) -> Run:
    def step(one: Step) -> Step:
        if one.phase != "weights.load":
            return one
        return msgspec.structs.replace(one, attributes={**one.attributes, **attributes})

    processes = tuple(
        msgspec.structs.replace(process, steps=tuple(map(step, process.steps))) for process in run.processes
    )
    return msgspec.structs.replace(run, processes=processes)


def test_one_type_by_two_names_is_one_type() -> None:
    one, other = made_run(kv_cache_dtype="bf16"), made_run(kv_cache_dtype="bfloat16")

    assert plan(one, like=other).like is not None


def test_a_run_that_adds_nothing_is_said_to_add_nothing() -> None:
    assert "--like lowfrac adds nothing: it failed in kv.profile itself" in " ".join(
        plan(recorded(LOWFRAC), like=recorded(LOWFRAC)).says
    )
    assert "--like car adds nothing: car measured all of it itself" in " ".join(
        plan(recorded(CAR), like=recorded(CAR)).says
    )


def test_a_run_that_failed_before_its_budget_is_planned_from_another_with_its_own_tenants() -> None:
    car, tenant = f"{EXPERIMENTS}/car", recorded(f"{FAILURES}/tenant")
    held = max(near.bytes or 0 for one in tenant.processes for near in one.neighbours if near.kind == "foreign")
    made = plan(tenant, like=recorded(car))

    assert "tenant" == made.stands_for
    assert held == value(made, "tenants_bytes")
    assert held == known(plan(recorded(car)), "pre_load_bytes") - known(made, "pre_load_bytes")
    assert made.starts is False  # the ranks were unlike, and SGLang did refuse them
    assert "SGLang refuses to start on ranks so unlike" in " ".join(made.says)
    alone = plan(tenant, Inputs(tenants={}), like=recorded(car))
    assert alone.starts
    assert number(alone, "tokens").run == value(alone, "tokens")


@pytest.mark.parametrize("name", ["tenant", "oom-weights"])
def test_others_taken_off_the_cards_of_an_early_failure_are_a_change_of_what_it_had(name: str) -> None:
    run, car = recorded(f"{FAILURES}/{name}"), recorded(f"{FAILURES}/car")
    held = value(plan(run, like=car), "tenants_bytes")
    made = plan(run, Inputs(tenants={}), like=car)

    assert [("--without-tenants", held, 0)] == [(one.flag, one.run, one.planned) for one in made.changes]
    assert f"the settings of {name}, without what others held on its cards." in made.says[0]
    assert f"the settings of {name} and what others held on its cards." in plan(run, like=car).says[0]


def test_weights_that_do_not_fit_beside_a_tenant_are_said_not_to_fit() -> None:
    made = plan(recorded(f"{FAILURES}/oom-weights"), like=recorded(f"{EXPERIMENTS}/car"))

    assert made.starts is False
    assert "out of memory while the weights are loaded" in " ".join(made.says)
    assert any(lever.says.startswith("the other processes gone") and lever.enough for lever in made.levers)


@pytest.mark.parametrize("name", ["tenant", "oom-weights"])
def test_a_run_that_failed_before_its_budget_says_in_plain_words_what_to_do(name: str) -> None:
    with pytest.raises(CannotPlan, match="plan from a run of the same server that got further") as caught:
        plan(recorded(f"{FAILURES}/{name}"), Inputs(tenants={}))

    assert "kv.profile" not in str(caught.value)
    with pytest.raises(CannotPlan, match="name a run of the same server that got further"):
        plan(recorded(LOWFRAC), like=recorded(f"{FAILURES}/{name}"))


def test_an_early_failure_of_another_server_is_not_planned_from_this_one() -> None:
    with pytest.raises(CannotPlan, match="--like made has --tp 4, and tenant 2"):
        plan(recorded(f"{FAILURES}/tenant"), like=made_run(tp=4))


def test_without_graphs_nothing_is_taken_for_them() -> None:
    run = made_run(disable_cuda_graph=True, free=10 * GIB)
    (process,) = run.processes
    steps = tuple(step for step in process.steps if step.phase != "graph.capture")
    made = plan(msgspec.structs.replace(run, processes=(msgspec.structs.replace(process, steps=steps),)))

    assert 0 == value(made, "graphs_bytes")
    assert 10 * GIB == value(made, "free_bytes")


def test_others_on_the_card_of_a_rank_without_a_budget_come_back_as_a_bound() -> None:
    tenant = Neighbour(pid=114880, kind="foreign", bytes=20 * GIB, peak_bytes=20 * GIB)
    run = made_run()
    (process,) = run.processes
    killed = msgspec.structs.replace(process, pid=4712, label="TP1", workers=(), steps=(), neighbours=(tenant,))
    (worker,) = process.workers
    assert worker.budget is not None
    own = msgspec.structs.replace(
        worker.budget, pre_load_local_bytes=110 * GIB, available_local_bytes=90 * GIB
    )  # the least, 90 and 70, was the other rank's
    seen = msgspec.structs.replace(process, workers=(msgspec.structs.replace(worker, budget=own),))
    made = plan(msgspec.structs.replace(run, processes=(seen, killed)), Inputs(tenants={}))

    assert ["--without-tenants"] == [one.flag for one in made.changes]
    assert 110 * GIB == value(made, "pre_load_bytes")
    assert 90 * GIB == value(made, "available_bytes")
    assert made.says[0].startswith("At least ")
    assert any("on TP1 itself is not recorded" in said and "a bound" in said for said in made.assumptions)


def test_a_rank_that_was_killed_in_its_budget_has_its_own_memory_from_the_steps_before() -> None:
    tenant = Neighbour(pid=114880, kind="foreign", bytes=20 * GIB, peak_bytes=20 * GIB)
    run = made_run()
    (process,) = run.processes
    begun = Step(
        id="p",
        parent=None,
        phase="kv.profile",
        worker="target",
        state="died",
        free_before_bytes=70 * GIB,
        cost_bytes=None,
    )
    assert process.pre_load is not None
    pre = msgspec.structs.replace(process.pre_load, pre_load_bytes=90 * GIB)
    killed = msgspec.structs.replace(
        process, pid=4712, label="TP1", workers=(), steps=(begun,), neighbours=(tenant,), pre_load=pre
    )
    (worker,) = process.workers
    assert worker.budget is not None
    own = msgspec.structs.replace(worker.budget, pre_load_local_bytes=105 * GIB, available_local_bytes=85 * GIB)
    seen = msgspec.structs.replace(process, workers=(msgspec.structs.replace(worker, budget=own),))
    made = plan(msgspec.structs.replace(run, processes=(seen, killed)), Inputs(tenants={}))

    assert 105 * GIB == value(made, "pre_load_bytes")  # now the first rank has the least
    assert 85 * GIB == value(made, "available_bytes")
    assert not made.says[0].startswith("At least ")


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((20.0, 20.0, 20.0), (20.0, 20.0)),
        ((0.0, 20.0, 20.0), (0.0, 20.0)),  # it came while the weights were loaded
        ((20.0, 0.0, 0.0), None),  # it was gone before the budget
    ],
)
def test_what_others_held_when_it_mattered_comes_back(lists: Any, expected: tuple[float, float] | None) -> None:
    run = msgspec.structs.replace(made_run(), processes=(seen(rank(0, 1, fraction=0.8, available=60.0), *lists),))
    before, made = plan(run), plan(run, Inputs(tenants={}))
    back = tuple(known(made, name) - known(before, name) for name in ("pre_load_bytes", "available_bytes"))

    if expected is not None:
        assert tuple(gib(one) for one in expected) == back
    else:
        assert 0 == back[1]


def test_a_tenant_that_is_gone_holds_nothing_and_the_flag_says_so() -> None:
    run = made_run()
    (process,) = run.processes
    gone = Neighbour(pid=114880, kind="foreign", bytes=20 * GIB, gone=True)
    made = plan(
        msgspec.structs.replace(run, processes=(msgspec.structs.replace(process, neighbours=(gone,)),)),
        Inputs(tenants={}),
    )

    assert () == made.changes
    assert "--without-tenants changes nothing: nobody else is seen on this run's cards any more" in made.assumptions
