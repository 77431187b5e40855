"""Readings perturb nothing: what is asked, when, and what is left null with its reason."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_probe.agent.health import Health
from sglang_probe.agent.identity import Identity, device_kind, uuid_of_visible_devices
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.readings import SLOW_SOURCE_NS, Readings, delta
from sglang_probe.events.envelope import READING_KEYS

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
FREE, TOTAL = 130_000_000_000, 150_000_000_000


class Cuda:
    """torch.cuda, as far as the agent may ask it; `asked` keeps what it asked."""

    def __init__(self, contexts: set[int], capturing: bool = False) -> None:
        self.contexts, self.capturing, self.asked = contexts, capturing, list[str]()

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.asked.append("mem_get_info")
        self.contexts.add(index)  # as CUDA does: asking makes a context
        return FREE, TOTAL

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        self.asked.append("memory_stats")
        return {f"{name}_bytes": {"all": {"current": 10, "peak": 20}} for name in ("allocated", "reserved")}

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(name="NVIDIA H200", uuid=UUID.removeprefix("GPU-"))


class FakeNvml(SimpleNamespace):
    nvmlMemory_v2 = 2  # noqa: N815  # NVML's own name, as the next four

    def __init__(self) -> None:
        super().__init__(asked=[])

    def nvmlInit(self) -> None:  # noqa: N802
        self.asked.append("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int) -> SimpleNamespace:  # noqa: N802
        assert (handle, version) == (UUID, self.nvmlMemory_v2)
        return SimpleNamespace(total=TOTAL + 5, reserved=5, used=TOTAL - FREE, free=FREE)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        self.asked.append("processes")
        return [SimpleNamespace(pid=1, usedGpuMemory=None)]


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cuda]:
    def put(contexts: set[int], *, capturing: bool = False, nvml: Any = None) -> Cuda:
        cuda = Cuda(contexts, capturing)
        core = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in cuda.contexts)
        monkeypatch.setitem(
            sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=core, version=SimpleNamespace(hip=None))
        )
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
    assert [key for key, value in reading.items() if value is None] == []
    assert (reading["device_free_bytes"], reading["device_total_bytes"]) == (FREE, TOTAL)
    assert reading["nvml_processes"] == [
        {"pid": 1, "bytes": None, **{k: reading["nvml_processes"][0][k] for k in ("start_ticks", "name")}}
    ]
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


def test_a_slow_source_is_not_asked_again(health: Health, install: Any) -> None:
    cuda = install(contexts={0})

    def slow(index: int) -> dict[str, Any]:
        cuda.asked.append("slow")
        time.sleep(SLOW_SOURCE_NS / 1e9 * 1.1)
        return {}

    cuda.memory_stats_as_nested_dict = slow
    readings = Readings(health, Nvml(health))
    for _ in range(3):
        readings.read("cuda", 0, None, processes=False)
    assert cuda.asked.count("slow") == 1
    assert "torch_stats:slow_source" in reasons(health)


def test_on_a_cpu_the_devices_memory_is_the_hosts_and_nothing_is_degraded(health: Health) -> None:
    reading = Readings(health, Nvml(health)).read("cpu", 0, None, processes=True)
    assert 0 < reading["device_free_bytes"] <= reading["device_total_bytes"]
    assert reading["device_free_bytes"] == reading["host_available_bytes"]
    assert reading["host_rss_bytes"] > 0
    assert reasons(health) == set()


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
    assert identity.fields()["device"] == {"index": 0, "uuid": UUID, "name": "NVIDIA H200", "kind": "cuda"}


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
