"""Devices that are no plain card: slices, memory shared with the host, Windows's driver, AMD, and kinds unread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_probe.agent import host
from sglang_probe.agent.health import Health
from sglang_probe.agent.identity import Identity, uuid_of_visible_devices
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.readings import Readings
from tests.agent.devices import FREE, TOTAL, UUID, Cuda, FakeAmdsmi, FakeNvml, Poisoned

SLICE = UUID.replace("GPU", "MIG")
SLICE_NAME = "NVIDIA H200 MIG 1g.18gb"
ADDRESS = "0000:c1:00.0"
PCI = {"pci_domain_id": 0, "pci_bus_id": 0xC1, "pci_device_id": 0}


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put modules in, and take what this machine has out."""

    def put(cuda: Cuda | None = None, *, hip: str | None = None, **modules: Any) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        found = {"pynvml": None, "amdsmi": None, **modules}
        for name, module in {**found, "torch": None if cuda is None else cuda.as_torch(hip=hip)}.items():
            monkeypatch.setitem(sys.modules, name, module)

    return put


def device_of(kind: str = "cuda") -> dict[str, Any]:
    known = Identity("run")
    known.use_device(kind, 0)
    return dict(known.fields()["device"])


def reasons(health: Health) -> set[str]:
    return {f"{item['source']}:{item['reason']}" for item in health.take()}


def test_a_plain_card_has_no_traits_and_they_are_unknown_until_cuda_is_up(on: Any) -> None:
    on()
    assert device_of()["traits"] is None
    on(Cuda({0}))
    assert device_of()["traits"] == []


def test_a_slice_goes_by_its_own_uuid_which_torch_spells_as_a_cards(health: Health, on: Any) -> None:
    nvml = FakeNvml(uuid=SLICE)
    on(Cuda({0}, properties={"name": SLICE_NAME}), pynvml=nvml)
    device = device_of()
    assert (device["uuid"], device["traits"]) == (SLICE, ["mig"])
    reading = Readings(health, Nvml(health)).read("cuda", 0, device["uuid"], processes=True)
    assert reading["nvml_free_bytes"] == FREE and reading["nvml_processes"]


def test_a_slice_that_the_user_spelled_out_wins_over_what_an_older_cuda_calls_it(
    on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(Cuda({0}, properties={"name": SLICE_NAME, "uuid": "ffffffff-0000-0000-0000-000000000000"}))
    for spelling in (SLICE, f"MIG-{UUID}/1/0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", spelling)
        assert uuid_of_visible_devices(0, os.environ) == spelling == device_of()["uuid"]


def test_a_slice_whose_processes_nvml_does_not_list_says_so_once(health: Health, on: Any) -> None:
    nvml = FakeNvml("processes", uuid=SLICE)
    on(Cuda({0}, properties={"name": SLICE_NAME}), pynvml=nvml)
    reader = Readings(health, Nvml(health))
    seen = [reader.read("cuda", 0, SLICE, processes=True) for _ in range(2)]
    assert [reading["nvml_processes"] for reading in seen] == [None, None]
    assert (nvml.asked.count("processes"), reasons(health)) == (1, {"nvml_processes:not_supported"})


def test_memory_shared_with_the_host_is_tagged_and_what_nvml_lacks_is_said_once(health: Health, on: Any) -> None:
    nvml = FakeNvml("memory")
    on(Cuda({0}, properties={"is_integrated": 1}), pynvml=nvml)
    assert device_of()["traits"] == ["integrated"]
    reader = Readings(health, Nvml(health))
    first = reader.read("cuda", 0, UUID, processes=False)
    assert (first["device_free_bytes"], first["nvml_total_bytes"]) == (FREE, None)
    assert reasons(health) == {"nvml:not_supported"}
    reader.read("cuda", 0, UUID, processes=False)
    assert (nvml.asked.count("memory"), reasons(health)) == (1, set())


def test_under_wsl_no_process_list_is_asked_for(health: Health, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    on(Cuda({0}), pynvml=nvml)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="6.6.87.2-microsoft-standard-WSL2"))
    assert host.is_wsl() and device_of()["traits"] == ["wsl"]
    reader = Readings(health, Nvml(health))
    reading = reader.read("cuda", 0, UUID, processes=True)
    assert reading["nvml_free_bytes"] == FREE and reading["nvml_processes"] is None
    assert ("processes" in nvml.asked, reasons(health)) == (False, {"nvml_processes:wsl"})


def test_amd_is_read_by_its_own_library_and_never_by_nvml(health: Health, on: Any) -> None:
    nvml = FakeNvml()
    on(Cuda({0}, properties=PCI), hip="7.0", pynvml=nvml, amdsmi=FakeAmdsmi(ADDRESS, os.getpid()))
    assert device_of()["kind"] == "rocm"
    reading = Readings(health, Nvml(health)).read("rocm", 0, UUID, processes=True)
    assert (reading["device_free_bytes"], reading["torch_allocated_bytes"]) == (FREE, 10)
    assert (reading["amdsmi_total_bytes"], reading["amdsmi_used_bytes"]) == (TOTAL + 5, TOTAL - FREE)
    own, unread = reading["amdsmi_processes"]
    assert (own["pid"], own["bytes"], own["parent"], unread["bytes"]) == (os.getpid(), 8, os.getppid(), None)
    assert (nvml.asked, reasons(health)) == ([], set())


def test_amd_without_its_library_has_torchs_figures_and_a_reason(health: Health, on: Any) -> None:
    on(Cuda({0}, properties=PCI), hip="7.0", pynvml=FakeNvml())
    reading = Readings(health, Nvml(health)).read("rocm", 0, None, processes=True)
    assert reading["device_free_bytes"] == FREE and "amdsmi_total_bytes" not in reading
    assert reasons(health) == {"amdsmi:package_not_found"}


def test_amd_devices_are_never_guessed_by_their_index(health: Health, on: Any) -> None:
    on(Cuda({0}), hip="7.0", amdsmi=FakeAmdsmi(ADDRESS, os.getpid()))
    Readings(health, Nvml(health)).read("rocm", 0, None, processes=True)
    assert reasons(health) == {"amdsmi:device_unknown"}


def test_amds_library_is_not_used_in_a_forked_child(health: Health, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Cuda({0}, properties=PCI), hip="7.0", amdsmi=FakeAmdsmi(ADDRESS, os.getpid()))
    reader = Readings(health, Nvml(health))
    assert "amdsmi_used_bytes" in reader.read("rocm", 0, None, processes=False)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert "amdsmi_used_bytes" not in reader.read("rocm", 0, None, processes=False)
    assert reasons(health) == {"amdsmi:after_fork"}


def test_a_kind_of_device_that_the_probe_does_not_read_is_named_once(health: Health, on: Any) -> None:
    nvml = FakeNvml()
    on(pynvml=nvml)
    reader = Readings(health, Nvml(health))
    reading = reader.read("other", 0, None, processes=True)
    assert reading["host_rss_bytes"] > 0 and reading["device_free_bytes"] is None
    assert (nvml.asked, reasons(health)) == ([], {"readings:device_kind"})
    reader.read("other", 0, None, processes=True)
    assert reasons(health) == set()


def test_a_poisoned_context_costs_the_devices_name_and_no_event(on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on()
    monkeypatch.setitem(sys.modules, "torch", Poisoned())
    assert device_of() == {"index": 0, "uuid": None, "name": None, "kind": "cuda", "traits": None}


def test_another_device_is_another_identity(on: Any) -> None:
    on(Cuda({0}))
    known = Identity("run")
    known.use_device("cuda", 0)
    assert known.uuid == UUID
    known.use_device("cpu", None)
    assert known.fields()["device"] == {"index": 0, "uuid": None, "name": None, "kind": "cpu", "traits": []}
