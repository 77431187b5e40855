"""Whose device it is."""

from __future__ import annotations

from msgspec.structs import replace

from sglang_probe.timeline.model import Device, Process
from tests.explain.explaining import failed, of, raising, rank, ready, rules, tenant
from tests.timeline.building import gib


def on(position: int, uuid: str, **more: object) -> Process:
    device = Device(index=position, uuid=uuid, name="NVIDIA H20", kind="cuda", total_bytes=gib(94.9))
    return rank(position, 2, device=device, available=80.0, weights=14.0, **more)  # type: ignore[arg-type]


def test_two_ranks_on_one_device_are_found_by_its_uuid() -> None:
    found = of("shared_device", ready(on(0, "GPU-a"), on(1, "GPU-a")))

    assert ("TP0", "TP1") == found.ranks
    assert found.severity == "warning"
    assert "CUDA_VISIBLE_DEVICES" in (found.lever.says if found.lever else "")


def test_it_is_the_cause_where_the_other_s_memory_would_have_made_the_difference() -> None:
    shared = Device(index=0, uuid="GPU-a", kind="cuda", total_bytes=gib(94.9))
    first = rank(0, pre_load=50.0, available=5.0, fraction=0.8, weights=10.0, device=shared)
    second = rank(1, pre_load=50.0, available=5.0, fraction=0.8, weights=10.0, device=shared)
    mates = [tenant(30.0, pid=other.pid or 0, kind="run") for other in (second, first)]
    run = failed(replace(first, neighbours=(mates[0],)), replace(second, neighbours=(mates[1],)))

    assert rules(run)[0] == "shared_device"


def test_it_is_no_cause_of_an_error_that_has_nothing_to_do_with_it() -> None:
    run = raising("weights.load", "KeyError: layers.0", "builtins.KeyError", free=50.0)
    shared = Device(index=0, uuid="GPU-a", kind="cuda")
    run = replace(run, processes=tuple(replace(one, device=shared) for one in run.processes))

    assert of("shared_device", run).severity == "warning"
    assert rules(run)[0] == "not_memory"


def test_nccl_s_own_complaint_makes_it_the_cause() -> None:
    run = raising("dist.communicator", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 0", "Exception")
    shared = Device(index=0, uuid="GPU-a", kind="cuda")
    run = replace(run, processes=tuple(replace(one, device=shared) for one in run.processes))

    assert rules(run)[0] == "shared_device"


def test_ranks_on_devices_of_their_own_and_ranks_on_a_cpu_share_none() -> None:
    cpu = [rank(n, 2, device=Device(kind="cpu", uuid="x")) for n in range(2)]

    assert "shared_device" not in rules(ready(on(0, "GPU-a"), on(1, "GPU-b")))
    assert "shared_device" not in rules(ready(*cpu))


def test_a_context_of_a_peer_on_the_wrong_card_is_named_with_its_home() -> None:
    peer = on(1, "GPU-b")
    stray = tenant(0.508, pid=peer.pid or 0, kind="run", name="sglang::scheduler_TP1")
    found = of("stray_context", ready(on(0, "GPU-a", tenants=(stray,)), peer))

    assert ("TP0",) == found.ranks
    assert f"TP1 (pid {peer.pid}) holds 0.508 GiB on GPU 0" in found.says
    assert "it belongs on GPU 1" in found.says


def test_a_launcher_s_context_has_no_home() -> None:
    launcher = Process(host="node-a", pid=4700, role="launcher")
    stray = tenant(0.508, pid=4700, kind="run")
    found = of("stray_context", ready(launcher, on(0, "GPU-a", tenants=(stray,)), on(1, "GPU-b")))

    assert "launcher (pid 4700) holds 0.508 GiB" in found.says
    assert "has no device of its own" in found.says


def test_a_peer_on_the_same_device_is_the_rule_of_shared_devices() -> None:
    peer = on(0, "GPU-a")
    mate = tenant(60.0, pid=peer.pid or 0, kind="run")

    assert "stray_context" not in rules(ready(on(0, "GPU-a", tenants=(mate,)), peer))
