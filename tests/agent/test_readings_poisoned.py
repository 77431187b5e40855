"""After a CUDA error that poisons the context every call of torch's raises, and the event is written all the same."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sglang_probe.agent.health import Health
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.readings import Readings
from sglang_probe.catalogue.targets import Target
from tests.agent.devices import FREE, POISON, UUID, Cuda, FakeNvml, Poisoned

CUDA_CALLS = {"is_current_stream_capturing", "_cuda_hasPrimaryContext", "mem_get_info", "get_device_properties"}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A healthy torch and NVML."""
    healthy = Cuda({0})
    monkeypatch.setitem(sys.modules, "torch", healthy.as_torch())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    return healthy


def reasons(degraded: list[Any]) -> dict[str, str]:
    return {f"{item['source']}:{item['reason']}": item["detail"] for item in degraded}


@pytest.mark.parametrize("role", ["weights.load", "graph.capture"])
def test_the_error_event_has_nvmls_figures_and_names_the_error(
    probe: Any, target: Callable[..., Target], cuda: Cuda, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    poisoned = Poisoned()

    def load() -> None:
        monkeypatch.setitem(sys.modules, "torch", poisoned)
        raise RuntimeError(POISON)

    probe.agent.identity.use_device("cuda", 0)
    module = probe.hook([target("load", role=role)], load=load)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        module.load()
    begin, error = probe.memory()
    assert begin["before"]["device_free_bytes"] == FREE
    assert (error["kind"], error["exception"]["message"]) == ("error", POISON)
    assert error["after"]["device_free_bytes"] is None and error["delta"]["device_free_bytes"] is None
    assert error["after"]["nvml_free_bytes"] == FREE and error["after"]["nvml_processes"]
    assert (error["device"]["uuid"], error["after"]["host_rss_bytes"] > 0) == (UUID, True)
    said = reasons(error["degraded"])
    assert POISON in said["torch_capture:read_failed"] and "torch:not_asked" in said


def test_cuda_is_asked_one_question_and_no_more_once_it_answers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned, health = Poisoned(), Health()
    monkeypatch.setitem(sys.modules, "torch", poisoned)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    readings = Readings(health, Nvml(health))
    readings.read("cuda", 0, UUID, processes=True)
    assert ["is_current_stream_capturing"] == [name for name in poisoned.asked if name in CUDA_CALLS]
    assert (readings.device_free("cuda", 0), readings.private_pools(0)) == (None, None)
    assert "memory_snapshot" not in poisoned.asked


def test_torchs_own_figures_need_no_cuda_and_are_kept(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health()
    monkeypatch.setattr(cuda, "is_current_stream_capturing", Poisoned().is_current_stream_capturing)
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=False)
    assert (reading["torch_allocated_bytes"], reading["device_free_bytes"]) == (10, None)
    assert "mem_get_info" not in cuda.asked


def test_an_error_that_speaks_of_a_capture_is_one(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health()

    def implicit() -> bool:
        raise RuntimeError("CUDA error: operation would make the legacy stream depend on a capturing blocking stream")

    monkeypatch.setattr(cuda, "is_current_stream_capturing", implicit)
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert (set(reading.values()), cuda.asked) == ({None}, [])
    assert set(reasons(health.take())) == {"readings:graph_capture"}


def test_a_torch_that_cannot_even_say_whether_cuda_is_up_costs_no_event(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = Health()
    monkeypatch.setattr(cuda, "is_initialized", Poisoned().anything)
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert reading["nvml_free_bytes"] == FREE and reading["device_free_bytes"] is None


def test_an_alarm_of_the_hosts_that_goes_off_in_our_question_reaches_the_host(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    def asked() -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return False

    monkeypatch.setattr(cuda, "is_current_stream_capturing", asked)
    health, before = Health(), signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(Alarm):
            Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=False)
    finally:
        signal.signal(signal.SIGUSR1, before)
