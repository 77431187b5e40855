"""What others held when it mattered, and what that did: at the pre-load memory, at the budget, at the failure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sglang_probe.collect.records import NvmlProcess, Reading
from sglang_probe.explain.others import Held, held
from sglang_probe.timeline.ledger_model import Neighbour
from sglang_probe.timeline.model import Failure, Kv, Process, Rank, RankPart
from tests.explain.explaining import failed, findings, of, raising, rank, rules, tenant
from tests.timeline.building import gib

PID = 114880
CAPTURE = (
    "CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 94.97 GiB of which {} GiB is free."
)


def listed(amount: float) -> Reading:
    """A reading whose process list names the other process with so many GiB; with 0 it is not in it."""
    return Reading(nvml_processes=(NvmlProcess(pid=PID, bytes=gib(amount)),) if amount else ())


def seen(process: Process, idle: float, weighed: float, end: float) -> Process:
    """The rank with lists before its first step, after its weights and at its end, GiB of the other process each."""
    steps = []
    for place, step in enumerate(process.steps):
        known: dict[str, Any] = {"mono_ns": place * 10, "duration_s": 5e-9}
        if step.phase == "scheduler.init":
            known |= {"before": listed(idle), "duration_s": 1e-6}
        elif step.phase == "weights.load":
            known |= {"after": listed(weighed)}
        elif step.phase == "kv.profile":
            known |= {"after": listed(end)}
        steps.append(replace(step, **known))
    other = Neighbour(pid=PID, kind="foreign", name="python3", bytes=gib(end), gone=not end,
                      peak_bytes=gib(max(idle, weighed, end)))  # fmt: skip
    return replace(process, steps=tuple(steps), neighbours=(other,))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0)),
        ((20.0, 0.0, 0.0), (0.0, 0.0, 0.0)),  # it left, at the latest while the weights came
        ((0.0, 20.0, 20.0), (0.0, 20.0, 20.0)),  # it came while the weights came
        ((20.0, 20.0, 0.0), (20.0, 0.0, 0.0)),
    ],
)
def test_what_was_there_before_and_after_a_moment_was_there_then(lists: Any, expected: Any) -> None:
    process = seen(rank(0, 1), *lists)

    assert Held(*map(gib, expected)) == held(process, process.neighbours[0])


def test_a_process_that_was_gone_before_the_budget_is_no_cause() -> None:
    run = failed(seen(rank(0, 1), 40.0, 0.0, 0.0))

    assert "weights_exceed_budget" == rules(run)[0]
    assert "foreign_tenant" not in rules(run)
    assert "growth" in rules(run)


def test_a_process_that_came_after_the_pre_load_memory_counts_in_full() -> None:
    """30 GiB at a fraction of 0.05 are 1.5 before the weights and 30 after."""
    came = seen(rank(0, 1, pre_load=94.0, available=60.0, fraction=0.05, weights=34.0), 0.0, 30.0, 30.0)
    there = seen(rank(0, 1, pre_load=64.0, available=30.0, fraction=0.05, weights=34.0), 30.0, 30.0, 30.0)

    late, early = (of("foreign_tenant", failed(one)) for one in (came, there))
    assert late.severity == "error"
    assert "came after the pre-load memory was read" in late.says
    assert early.severity == "warning"
    assert early.lever is not None
    assert gib(30 * 0.05) == pytest.approx(early.lever.gain_bytes, abs=64)


def test_after_the_pools_only_what_they_would_have_left_of_it_is_credited() -> None:
    """At a fraction of 0.9 the KV pools take 0.9 of what comes back: 5 GiB leave 0.5, and 1 is short."""
    enough, too_little = (_capture(short=short, held_gib=5.0) for short in (0.4, 1.0))

    assert of("foreign_tenant", enough).severity == "error"
    assert of("foreign_tenant", too_little).severity == "warning"
    assert "5.000 less the 4.500 that the KV pools would have taken" in of("foreign_tenant", too_little).says


def test_pools_that_a_cap_limits_take_nothing_of_it() -> None:
    run = _capture(
        short=1.0, held_gib=5.0, kv=Kv(tokens=1000, limited_by="max_total_tokens", max_total_tokens_given=1000)
    )

    assert of("foreign_tenant", run).severity == "error"
    assert of("graphs", run).lever is not None
    assert "--max-total-tokens" == getattr(of("graphs", run).lever, "flag", None)


def _capture(short: float, held_gib: float, kv: Kv | None = None) -> Any:
    run = raising("graph.capture", CAPTURE.format(f"{short + 0.5:.2f}", "0.50"))
    first, second = run.processes
    target = replace(first.workers[0], kv=kv)
    others = (tenant(held_gib),)
    return replace(
        run,
        processes=(replace(first, neighbours=others, workers=(target,)), replace(second, neighbours=others)),
    )


def test_a_rank_that_was_ended_before_it_said_its_budget_counts_by_what_it_had_free() -> None:
    least = {"pre_load_local_bytes": gib(94.0), "available_local_bytes": gib(21.0)}
    whole = rank(0, pre_load=87.0, available=14.0, fraction=0.8, budget=least)  # SGLang's are the minimum, TP1's
    poor = rank(1, pre_load=87.0, available=14.0, fraction=0.8, tenants=(tenant(7.0),))
    cut = [replace(step, state="interrupted") if step.phase == "kv.profile" else step for step in poor.steps]
    run = failed(whole, replace(poor, steps=tuple(cut), workers=()))

    found = of("foreign_tenant", run)
    assert found.severity == "error"
    assert found.lever is not None
    assert gib(7.0 * 0.8) == pytest.approx(found.lever.gain_bytes, abs=128)


def test_a_rank_of_which_nothing_is_known_makes_a_cause_likely_and_not_certain() -> None:
    poor = rank(1, pre_load=84.0, available=11.7, fraction=0.85, tenants=(tenant(10.0),))
    silent = Process(host="node-a", pid=9, label="TP2", role="scheduler", rank=Rank(world=RankPart(2, 3)))
    run = failed(rank(0, pre_load=94.0, available=21.7, fraction=0.85), poor, silent)

    found = of("foreign_tenant", run)
    assert (found.severity, found.confidence) == ("error", "likely")
    assert "if no rank whose figures are not here is poorer still" in found.says


def test_replicas_do_not_share_a_minimum() -> None:
    def replica(number: int, **figures: Any) -> Process:
        place = Rank(dp=RankPart(number, 2), tp=RankPart(0, 1), world=RankPart(0, 1))
        return replace(rank(0, 1, **figures), rank=place, label=f"DP{number}", pid=4711 + number)

    run = failed(
        replica(0, pre_load=100.0, available=17.0, fraction=0.8),
        replica(1, pre_load=92.0, available=9.0, fraction=0.8, tenants=(tenant(13.0),)),
    )

    assert (
        of("foreign_tenant", run).severity == "error"
    )  # 22 - 105 x 0.2 = 1.0


def test_others_that_are_the_cause_only_together_are_said_to_be() -> None:
    left = tenant(2.0, name="sglang::scheduler_TP0", left_over=True)
    run = failed(rank(0, 1, pre_load=90.0, available=15.0, fraction=0.8, tenants=(left, tenant(2.0, pid=7))))

    found = [one for one in findings(run) if one.rule in {"left_over", "foreign_tenant"}]
    assert ["error", "error"] == [one.severity for one in found]  # each gives 1.6 of the 3.0 that were short
    assert all("with the others' memory it is" in one.says for one in found)


def test_an_error_in_the_distributed_init_is_not_called_sglang_s_refusal_for_a_spread() -> None:
    nccl = Failure(id="e", type="torch.distributed.DistBackendError", message="NCCL error: unhandled system error")
    run = failed(
        rank(0), rank(1, pre_load=80.0, available=7.7, tenants=(tenant(12.0),)), phase="dist.init", failure=nccl
    )
    bare = tuple(replace(one, workers=()) for one in run.processes)
    run = replace(run, processes=bare)

    assert all(one.severity != "error" for one in findings(run) if one.rule in {"rank_spread", "foreign_tenant"})


def test_a_refusal_of_which_one_rank_alone_is_here_is_read_from_sglang_s_message() -> None:
    said = ("The memory capacity is unbalanced. Some GPUs may be occupied by other processes."
            " pre_model_load_memory=107.768310546875, local_gpu_memory=138.27960205078125")  # fmt: skip
    failure = Failure(id="e", type="builtins.RuntimeError", message=said)
    run = failed(replace(rank(0), workers=(), steps=()), phase="dist.init", failure=failure)

    assert "the poorest rank has 107.768 GiB free and TP0 138.280: 30.512 GiB less" in of("rank_spread", run).says


def test_many_small_strangers_are_worth_saying_together() -> None:
    small = tuple(tenant(0.06, pid=pid) for pid in range(64))

    assert "64" in str(len(of("foreign_tenant", failed(rank(0, 1, tenants=small))).numbers["processes"]))
