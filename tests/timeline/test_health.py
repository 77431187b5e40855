"""How the probe itself did, and what a run was made of."""

from __future__ import annotations

from sglang_probe.events import names
from tests.collect.building import Host, Writer
from tests.collect.starting import Shape, launch
from tests.timeline.making import ranks, run_of


def test_a_run_that_hooked_its_roles_is_healthy() -> None:
    health = run_of(launch([Shape()])).health

    assert health.ok
    assert () == health.says
    assert names.ROLES == health.memory_roles


def test_a_run_without_a_memory_role_is_a_loud_failure_of_the_probe() -> None:
    writer = Writer(Host(), 7, start_ticks=1, role="launcher")
    writer.start()
    writer.target("kv.profile", "absent")

    health = run_of([writer]).health

    assert not health.ok
    assert "no memory role was hooked" in health.says[0]
    assert names.ROLES == health.absent_roles


def test_a_missing_rank_is_said_loudly_unless_the_start_goes_on() -> None:
    launcher, first, _ = launch([Shape(), Shape()])

    assert ("ranks are missing (1): rank 1 of 2",) == run_of([launcher, first]).health.says
    assert () == run_of([launcher, first], lambda _: True).health.says


def test_hooks_that_failed_or_were_displaced_are_named() -> None:
    launcher, rank = launch([Shape()])
    rank.target("kv.pool", name="sglang.srt:Pool.__init__")
    rank.target("kv.pool", "displaced", name="sglang.srt:Pool.__init__", fingerprint=None)

    run = run_of([launcher, rank])

    assert ["sglang.srt:Pool.__init__"] == [target.target for target in run.health.failed_targets]
    assert "0" * 16 == run.health.failed_targets[0].fingerprint
    assert "hooks failed or were displaced (1): sglang.srt:Pool.__init__" in run.health.says[0]


def test_degradations_are_counted_over_events_and_by_what_the_probe_says() -> None:
    launcher, rank = launch([Shape()])
    for event in rank.events[-2:]:
        event["degraded"] = [{"source": "nvml", "reason": "library_not_found", "detail": "libnvidia-ml"}]
    rank.emit(names.DEGRADED, attributes={"counts": {"nvml:library_not_found": 9, "writer:disk_full": 2}})

    run = run_of([launcher, rank])

    assert [("nvml", "library_not_found", "libnvidia-ml", 9), ("writer", "disk_full", None, 2)] == [
        (one.source, one.reason, one.detail, one.count) for one in run.health.degraded
    ]
    assert run.health.degraded == ranks(run)[0].degraded


def test_events_that_the_probe_could_not_write_are_lost() -> None:
    launcher, rank = launch([Shape()])
    rank.emit(names.DEGRADED, attributes={"counts": {}, "dropped_events": 3})

    assert 3 == run_of([launcher, rank]).health.lost_events


def test_provenance_comes_from_the_launcher() -> None:
    launcher, rank = launch([Shape()])
    launcher.events[0]["attributes"]["argv"] = ["python", "-m", "sglang.launch_server", "--tp", "1"]
    rank.events[0]["attributes"]["argv"] = ["python", "-c", "spawn_main()"]

    provenance = run_of([launcher, rank]).provenance

    assert ("python", "-m", "sglang.launch_server", "--tp", "1") == provenance.command
    assert launcher.events[1]["attributes"]["given"] == provenance.given
    assert "0.5.14" == provenance.sglang_version
    assert () == provenance.differs


def test_what_only_a_rank_knows_completes_the_launcher() -> None:
    launcher, rank = launch([Shape()])
    rank.events[0]["attributes"]["versions"] = {"driver": "580.159.04"}

    assert "580.159.04" == run_of([launcher, rank]).provenance.versions["driver"]


def test_processes_that_differ_in_a_version_a_variable_or_a_function_are_named() -> None:
    launcher, first, second = launch([Shape(), Shape()])
    second.events[0]["attributes"]["versions"] = {"torch": "2.12.0"}
    second.events[0]["attributes"]["environment"] = {"NCCL_DEBUG": "INFO"}
    first.events[0]["attributes"]["environment"] = {"NCCL_DEBUG": "WARN"}
    second.target("kv.profile", fingerprint="f" * 16)

    differs = {one.key: one.values for one in run_of([launcher, first, second]).provenance.differs}

    assert {"version of torch", "variable NCCL_DEBUG", "fingerprint of sglang.srt:kv.profile"} == set(differs)
    assert {"INFO": ("TP1",), "WARN": ("TP0",)} == differs["variable NCCL_DEBUG"]


def test_arguments_given_and_in_force_are_both_there() -> None:
    launcher, rank = launch([Shape()])
    rank.emit(names.SERVER_ARGS, attributes={"given": None, "effective": {"tp_size": 1, "page_size": 16}})

    provenance = run_of([launcher, rank]).provenance

    assert (16, "1") == ((provenance.effective or {})["page_size"], (provenance.given or {})["--tp"])


def test_a_displaced_hook_that_is_called_afterwards_is_no_gap() -> None:
    launcher, rank = launch([Shape()])
    wrapped, gone = "sglang.srt:Pool.__init__", "sglang.srt:Other.__init__"
    for name in (wrapped, gone):
        rank.target("kv.pool", name=name)
        rank.target("kv.pool", "displaced", name=name, fingerprint=None, reason="another object")
    with rank.step("kv.pool"):
        pass
    rank.events[-2]["attributes"] = {"target": wrapped}  # of the begin: the call itself

    run = run_of([launcher, rank])

    assert [gone] == [target.target for target in run.health.failed_targets]
    assert ("applied", None) in {(one.state, one.reason) for one in ranks(run)[0].targets if one.target == wrapped}


def test_a_call_that_ends_after_its_hook_was_displaced_proves_nothing() -> None:
    launcher, rank = launch([Shape()])
    name = "sglang.srt:Pool.__init__"
    with rank.step("kv.pool", target=name):
        rank.target("kv.pool", "displaced", name=name)

    assert [name] == [target.target for target in run_of([launcher, rank]).health.failed_targets]


def test_a_rank_that_hooked_no_memory_role_and_events_that_were_not_written_are_said_loudly() -> None:
    launcher, rank = launch([Shape()])
    rank.emit(names.DEGRADED, attributes={"counts": {}, "dropped_events": 3, "no_memory_role": True})

    run = run_of([launcher, rank])

    assert [
        "no memory role was hooked in 1 of the ranks, whose memory was not seen: TP0",
        "events could not be written (3), as on a full disk: they are lost",
    ] == list(run.health.says)
    assert (3, 3) == (run.health.lost_events, run.health.dropped_events)
    assert ranks(run)[0].no_memory_role


def test_a_number_that_64_bits_do_not_hold_is_unknown_and_counted() -> None:
    launcher, rank = launch([Shape()])
    profile = next(event for event in rank.events if event["event"] == "sglang.memory.kv.profile.end")
    profile["attributes"] |= {"rest_bytes": 10**400, "slack_bytes": -(1 << 63) - 1}
    weights = next(event for event in rank.events if event["event"] == "sglang.memory.weights.load.end")
    weights["after"] |= {"device_free_bytes": 10**400}

    run = run_of([launcher, rank])

    budget = ranks(run)[0].workers[0].budget
    assert budget is not None
    assert (None, None) == (budget.rest_bytes, budget.slack_bytes)
    load = next(one for one in ranks(run)[0].steps if one.phase == "weights.load")
    assert (None, "reader: unreadable_part (after)") == (load.free_bytes, load.null_reason)
    assert [3] == [one.count for one in run.health.degraded if one.source == "reader"]
