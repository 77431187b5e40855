"""Endings that are not the device's memory, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sglang_probe.timeline.model import Budget, Device, Failure, Health, Missing, Process, Run, Worker
from tests.explain.explaining import findings, of, raising, rules
from tests.timeline.building import build_rank, build_run, build_step, gib

CRASH = "Error when load the checkpoint: size mismatch for layers.0"


def died(free: float | None = 12.3) -> Run:
    step = build_step("graph.capture decode", 1, free, None, None, state="died")
    return build_run((build_rank(0, 1, (step,)),), "died", failed_phase="graph.capture", failed_label="TP0")


def test_another_exception_with_plenty_free_is_not_memory() -> None:
    run = raising("weights.load", CRASH, "builtins.ValueError", free=50.0)
    found = of("not_memory", run)

    assert rules(run)[0] == "not_memory"
    assert (
        "ValueError in weights.load on TP0, and 50.000 GiB were free on GPU 0 at that moment: not memory" in found.says
    )
    assert CRASH in found.says
    assert gib(50.0) == found.numbers["free_bytes"]


def test_an_exception_about_the_host_s_memory_may_say_nothing() -> None:
    found = of("not_memory", raising("weights.load", "", "builtins.MemoryError", free=50.0))

    assert "This is about the host's memory" in found.says
    assert found.says.endswith("It has no message.")


def test_a_process_that_is_gone_without_an_exception_is_not_an_out_of_memory_error() -> None:
    found = of("not_memory", died())

    assert "ended in graph.capture without an exception" in found.says
    assert "12.300 GiB were free on GPU 0" in found.says
    assert found.confidence == "likely"


def test_on_a_cpu_a_process_that_is_gone_is_told_by_the_host_s_memory() -> None:
    run = died()
    (process,) = run.processes
    on_cpu = replace(process, device=Device(index=0, name="cpu", kind="cpu"))
    found = of("not_memory", replace(run, processes=(on_cpu,)))

    assert "12.300 GiB were free on the host" in found.says
    assert "GPU" not in found.says
    assert "would have been raised" not in found.says  # there the kernel ends who takes too much


def launcher(**more: Any) -> Process:
    return Process(host="node-a", pid=4700, role="launcher", **{"alive": False, **more})


def test_a_launcher_that_ended_before_any_rank_is_not_memory() -> None:
    found = of("not_memory", build_run((launcher(),), "unknown", outcome_reason="no rank began scheduler.init"))

    assert found.severity == "error"
    assert "(pid 4700) ended before any rank began" in found.says


@pytest.mark.parametrize(("processes", "more"), [
    ((launcher(alive=None),), {}),
    ((launcher(alive=True),), {}),
    ((launcher(),), {"unread_files": 1}),
    ((launcher(), replace(build_rank(0, 2, ()), alive=False)), {}),
    ((replace(launcher(), role="other"),), {}),
], ids=["unknowable", "running", "a file was not given", "a rank began", "no launcher"])  # fmt: skip
def test_of_a_launcher_that_may_have_had_ranks_nothing_is_claimed(
    processes: tuple[Process, ...], more: dict[str, Any]
) -> None:
    assert "not_memory" not in rules(build_run(processes, "unknown", **more))


@pytest.mark.parametrize("message", [
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes",
    "unable to allocate shared memory(shm) for file </torch_1>: /dev/shm is full",
])  # fmt: skip
def test_host_and_shared_memory_are_told_from_the_device_s(message: str) -> None:
    found = of("not_memory", raising("graph.capture", message, "builtins.RuntimeError", free=50.0))

    assert "no --mem-fraction-static moves it" in found.says


def test_a_lost_peer_s_error_is_called_a_consequence() -> None:
    run = replace(
        died(), lost_peer=True, failure=Failure(id="e", type="Exception", message="Connection closed by peer")
    )

    assert any("is a consequence" in note for note in of("not_memory", run).notes)


def test_a_record_that_ends_in_the_middle_claims_nothing() -> None:
    """Rebuilt from a report: the last line is of a capture with 90.21 GiB free."""
    step = build_step("graph.capture decode", 1, 90.21, None, None, state="open")
    run = build_run((build_rank(0, 16, (step,)),), "unknown", outcome_reason="steps never ended")
    found = of("unfinished", run)

    assert "The record ends in graph.capture, on TP0 with 90.210 GiB free" in found.says
    assert not any("out of memory" in one.says.lower() for one in findings(run))
    assert all(one.severity != "error" for one in findings(run))


def test_the_few_that_lag_behind_are_pointed_at() -> None:
    late = build_rank(0, 4, (build_step("dist.init", 1, 90.0, None, None, state="open"),))
    ahead = [build_rank(n, 4, (build_step("weights.load", 1, 90.0, None, None, state="open"),)) for n in (1, 2, 3)]
    run = build_run((late, *ahead), "starting")

    lagging = [one for one in findings(run) if one.rule == "unfinished" and one.severity == "warning"]
    assert [("TP0",)] == [one.ranks for one in lagging]


def test_a_failure_that_no_rule_knows_says_what_would_have_to_be_recorded() -> None:
    missing = (Missing(world_rank=1, world_size=2, reason="no file of it is here"),)
    run = build_run(
        (build_rank(0, 2, ()),), "failed", missing=missing, health=Health(ok=False, absent_roles=("kv.profile",))
    )
    found = of("unexplained", run)

    assert rules(run)[0] == "unexplained"
    assert any("rank 1 wrote nothing" in note for note in found.notes)
    assert any("no hook saw kv.profile" in note for note in found.notes)
    assert any("no exception was recorded" in note for note in found.notes)


def test_a_rank_with_nothing_known_raises_nothing() -> None:
    bare = build_rank(0, 2, (), workers=(Worker(worker="target", budget=Budget()),))

    assert ["unexplained"] == rules(build_run((bare,), "failed"))


def test_an_error_that_only_reports_a_lost_peer_is_no_cause_of_its_own() -> None:
    run = replace(raising("graph.capture", "Connection closed by peer", "Exception", free=12.0), lost_peer=True)
    found = of("not_memory", run)

    assert "only reports a lost peer: Connection closed by peer" in found.says
    assert "not in this record" in found.says


def test_a_part_of_a_run_s_files_says_so_and_guesses_at_nothing_else() -> None:
    run = build_run((build_rank(0, 2, ()),), "unknown", unread_files=3)

    assert ["incomplete"] == rules(run)
    assert "3 files of this run lie beside and were not given" in of("incomplete", run).says


def test_a_launcher_that_is_gone_with_its_ranks_is_named_and_no_rank_is_blamed() -> None:
    step = build_step("scheduler.init", 0, 20.9, None, None, state="died")
    ranks = [replace(build_rank(place, 2, (step,)), alive=False) for place in range(2)]
    launcher = Process(host="node-a", pid=4700, role="launcher", alive=False)
    found = of("not_memory", build_run((launcher, *ranks), "died", failed_phase="scheduler.init"))

    assert () == found.ranks
    assert "launcher, TP0, TP1 (pids 4700, 4711, 4712) are gone, without an exception in scheduler.init" in found.says
    assert "which went first is not known" in found.says
    assert "20.900 GiB were free on" in found.says
    assert "for pids 4700, 4711, 4712" in found.lever.says if found.lever else False
