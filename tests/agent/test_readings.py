"""Readings perturb nothing: what is asked, when, and what is left null with its reason."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_probe.agent import host, sources
from sglang_probe.agent.health import Health
from sglang_probe.agent.identity import Identity, device_kind, uuid_of_visible_devices
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.readings import Readings, delta
from sglang_probe.agent.sources import SLOW_SOURCE_NS
from sglang_probe.events.envelope import READING_KEYS
from tests.agent.devices import FREE, TOTAL, UUID, Cuda, FakeNvml


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cuda]:
    def put(contexts: set[int], *, capturing: bool = False, nvml: Any = None) -> Cuda:
        cuda = Cuda(contexts, capturing)
        monkeypatch.setitem(sys.modules, "torch", cuda.as_torch())
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return cuda

    return put


def reasons(health: Health) -> set[str]:
    return {f"{item['source']}:{item['reason']}" for item in health.take()}


def test_a_device_without_a_context_of_this_process_is_not_asked(health: Health, install: Any) -> None:
    cuda = install(contexts={0})
    reading = Readings(health, Nvml(health)).read("cuda", 1, None, processes=False)
    assert cuda.asked == [] and cuda.contexts == {0}
    assert reading["device_free_bytes"] is None
    assert "torch:no_context" in reasons(health)


def test_nothing_is_read_while_a_graph_is_being_captured(health: Health, install: Any) -> None:
    cuda = install(contexts={0}, capturing=True)
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert cuda.asked == []
    assert set(reading.values()) == {None}
    assert reasons(health) == {"readings:graph_capture"}


def test_every_key_of_a_reading_is_there_and_filled(health: Health, install: Any) -> None:
    install(contexts={0}, nvml=FakeNvml())
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert tuple(reading) == READING_KEYS
    assert [key for key, value in reading.items() if value is None] == ["nvml_processes_left_out"]  # it is whole
    assert (reading["device_free_bytes"], reading["device_total_bytes"]) == (FREE, TOTAL)
    assert [(one["pid"], one["bytes"]) for one in reading["nvml_processes"]] == [(1, None)]
    assert reasons(health) == set()


def test_process_lists_are_read_only_where_asked_for(health: Health, install: Any) -> None:
    nvml = FakeNvml()
    install(contexts={0}, nvml=nvml)
    Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=False)
    assert "processes" not in nvml.asked


def test_nvml_is_never_asked_without_a_uuid_nor_after_a_fork(health: Health, install: Any) -> None:
    install(contexts={0}, nvml=FakeNvml())
    nvml = Nvml(health)
    readings = Readings(health, nvml)
    assert readings.read("cuda", 0, None, processes=True)["nvml_total_bytes"] is None
    assert reasons(health) == {"nvml:uuid_unknown"}
    nvml.forget()
    assert readings.read("cuda", 0, UUID, processes=True)["nvml_total_bytes"] is None
    assert reasons(health) == {"nvml:after_fork"}


def test_a_missing_nvml_is_a_reason_and_not_a_failure(health: Health, install: Any) -> None:
    install(contexts={0}, nvml=None)
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert reading["device_free_bytes"] == FREE and reading["nvml_used_bytes"] is None
    assert reasons(health) == {"nvml:package_not_found"}


def test_a_source_that_fails_leaves_the_others(health: Health, install: Any) -> None:
    cuda = install(contexts={0}, nvml=FakeNvml())

    def poisoned(_: int) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    cuda.mem_get_info = poisoned
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=False)
    assert reading["device_free_bytes"] is None and reading["nvml_free_bytes"] == FREE
    assert "torch:read_failed" in reasons(health)


def answer_late(cuda: Cuda) -> None:
    """Let the allocator's figures take longer than a source may."""

    def slow(index: int) -> dict[str, Any]:
        cuda.asked.append("slow")
        time.sleep(SLOW_SOURCE_NS / 1e9 * 1.1)
        return {}

    cuda.memory_stats_as_nested_dict = slow  # type: ignore[method-assign]


def test_a_slow_source_is_not_asked_again(health: Health, install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(contexts={0})
    answer_late(cuda)
    monkeypatch.setattr(sources, "cpu_wait_ns", lambda: 0)  # however busy the machine is that runs this
    readings = Readings(health, Nvml(health))
    for _ in range(3):
        readings.read("cuda", 0, None, processes=False)
    assert cuda.asked.count("slow") == 1
    assert "torch_stats:slow_source" in reasons(health)


def test_a_source_whose_thread_waited_for_a_cpu_was_not_slow_itself(
    health: Health, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = install(contexts={0})
    answer_late(cuda)
    waited = itertools.count(step=SLOW_SOURCE_NS)
    monkeypatch.setattr(sources, "cpu_wait_ns", lambda: next(waited))
    readings = Readings(health, Nvml(health))
    for _ in range(2):
        readings.read("cuda", 0, None, processes=False)
    assert cuda.asked.count("slow") == 2
    assert "torch_stats:preempted" in reasons(health)


def test_where_nobody_counts_the_wait_for_a_cpu_a_late_source_is_a_slow_one(
    health: Health, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_late(install(contexts={0}))
    monkeypatch.setattr(sources, "cpu_wait_ns", lambda: None)
    Readings(health, Nvml(health)).read("cuda", 0, None, processes=False)
    assert "torch_stats:slow_source" in reasons(health)


def test_a_thread_that_sleeps_does_not_wait_for_a_cpu_as_one_does_that_has_none() -> None:
    began = sources.cpu_wait_ns()
    if began is None:
        pytest.skip("this kernel does not count it")
    time.sleep(0.3)
    after = sources.cpu_wait_ns()
    assert after is not None and after - began < 0.3e9


def test_private_pools_are_those_of_the_device_and_not_walked_while_capturing(health: Health, install: Any) -> None:
    cuda = install(contexts={0})
    readings = Readings(health, Nvml(health))
    assert readings.private_pools(0) == 14
    assert readings.private_pools(1) is None  # no context of this process there
    cuda.capturing = True
    assert readings.private_pools(0) is None
    assert cuda.asked.count("memory_snapshot") == 1


def test_an_older_torch_without_figures_for_pinned_memory_says_so_once(health: Health, install: Any) -> None:
    cuda = install(contexts={0}, nvml=FakeNvml())
    cuda.host_memory_stats_as_nested_dict = None
    readings = Readings(health, Nvml(health))
    assert readings.read("cuda", 0, UUID, processes=False)["torch_pinned_bytes"] is None
    assert reasons(health) == {"torch_pinned:not_supported"}
    readings.read("cuda", 0, UUID, processes=False)
    assert reasons(health) == set()


def test_pinned_memory_is_what_torch_holds_by_either_of_its_names(health: Health, install: Any) -> None:
    cuda = install(contexts={0}, nvml=FakeNvml())
    readings = Readings(health, Nvml(health))
    newer = readings.read("cuda", 0, UUID, processes=False)["torch_pinned_bytes"]
    older = {"allocated_bytes": {"current": 5}, "reserved_bytes": {"current": 30}}
    cuda.host_memory_stats_as_nested_dict = lambda: older
    assert newer == readings.read("cuda", 0, UUID, processes=False)["torch_pinned_bytes"] == 30


def test_on_a_cpu_the_devices_memory_is_the_hosts_and_nothing_is_degraded(health: Health) -> None:
    reading = Readings(health, Nvml(health)).read("cpu", 0, None, processes=True)
    assert 0 < reading["device_free_bytes"] <= reading["device_total_bytes"]
    assert reading["device_free_bytes"] == reading["host_available_bytes"]
    assert reading["host_rss_bytes"] > 0
    assert reasons(health) == set()


def test_what_dev_shm_holds_is_its_size_less_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def statvfs(path: str) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(f_blocks=100, f_bfree=60, f_bavail=50, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert (host.memory()["host_shm_used_bytes"], asked) == (40 * 4096, ["/dev/shm"])

    def refuse(path: str) -> SimpleNamespace:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "statvfs", refuse)
    assert host.memory()["host_shm_used_bytes"] is None


def test_a_delta_is_null_where_either_side_is_unknown() -> None:
    one, two = dict.fromkeys(READING_KEYS, 5), dict.fromkeys(READING_KEYS, 3)
    two["host_rss_bytes"] = None  # type: ignore[assignment]
    change = delta(one, two)
    assert change is not None
    assert (change["device_free_bytes"], change["host_rss_bytes"]) == (-2, None)
    assert delta(None, two) is None


def test_a_device_is_named_by_nvmls_spelling_of_its_uuid(install: Any) -> None:
    install(contexts={0})
    identity = Identity("run")
    identity.use_device("cuda", 0)
    device = identity.fields()["device"]
    assert {key: device[key] for key in ("index", "uuid", "name", "kind")} == {
        "index": 0, "uuid": UUID, "name": "NVIDIA H200", "kind": "cuda"
    }  # fmt: skip


def test_the_device_is_unknown_until_sglang_has_said_it() -> None:
    assert Identity("run").fields()["device"] is None


@pytest.mark.parametrize(
    ("visible", "index", "expected"),
    [(UUID, 0, UUID), (f"0,{UUID}", 1, UUID), ("0,1", 1, None), ("GPU-0123", 0, None), (UUID, 3, None), ("", 0, None)],
)
def test_visible_devices_settle_a_uuid_only_where_they_spell_it_out(
    visible: str, index: int, expected: str | None
) -> None:
    assert uuid_of_visible_devices(index, {"CUDA_VISIBLE_DEVICES": visible}) == expected


@pytest.mark.parametrize(("device", "kind"), [("cuda", "cuda"), ("cuda:3", "cuda"), ("cpu", "cpu"), ("npu", "other")])
def test_a_torch_device_has_a_kind(device: str, kind: str, install: Any) -> None:
    install(contexts=set())
    assert device_kind(device) == kind
