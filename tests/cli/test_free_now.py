"""What is free on the devices of a run is asked where they are, and only there."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sglang_probe.cli import free_now
from sglang_probe.cli.free_now import FreeNow
from sglang_probe.timeline.model import Device, Run
from tests.timeline.building import build_rank, build_run


def run_on(kind: str, *, alive: bool | None = True) -> Run:
    device = Device(index=0, uuid="GPU-1", kind=kind)
    return build_run(tuple(build_rank(place, 2, (), device=device, alive=alive) for place in range(2)), "starting")


def nvml(monkeypatch: pytest.MonkeyPatch, free: Any) -> list[str]:
    """Put bindings of NVML into place; return the UUIDs that were asked for."""
    asked: list[str] = []
    bindings: Any = types.ModuleType("pynvml")
    bindings.nvmlMemory_v2 = 2
    bindings.nvmlInit = lambda: None
    bindings.nvmlDeviceGetHandleByUUID = asked.append
    bindings.nvmlDeviceGetMemoryInfo = lambda _, version: types.SimpleNamespace(free=free(version))
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    return asked


def test_a_gpu_of_this_machine_is_asked_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = nvml(monkeypatch, lambda version: 40 + version)

    assert {"TP0": 42, "TP1": 42} == FreeNow().of(run_on("cuda"))
    assert ["GPU-1", "GPU-1"] == asked


@pytest.mark.parametrize("alive", [None, False])
def test_ranks_that_do_not_run_here_are_not_asked(monkeypatch: pytest.MonkeyPatch, alive: bool | None) -> None:
    asked = nvml(monkeypatch, lambda _: 1)

    assert {} == FreeNow().of(run_on("cuda", alive=alive))
    assert [] == asked


def test_without_bindings_or_with_a_gpu_that_is_lost_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: int) -> int:
        raise RuntimeError("GPU is lost")

    nvml(monkeypatch, lost)
    assert {} == FreeNow().of(run_on("cuda"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert {} == FreeNow().of(run_on("cuda"))


def test_a_source_that_is_slow_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = nvml(monkeypatch, lambda _: 1)
    monkeypatch.setattr(free_now, "SLOW_S", -1.0)
    now = FreeNow()

    assert ({"TP0": 1, "TP1": 1}, {}) == (now.of(run_on("cuda")), now.of(run_on("cuda")))
    assert 2 == len(asked)


def test_the_memory_of_a_cpu_is_what_the_host_has_available(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemFree:  1 kB\nMemAvailable:  40 kB\n")
    monkeypatch.setattr(free_now, "MEMINFO", meminfo)

    assert {"TP0": 40960, "TP1": 40960} == FreeNow().of(run_on("cpu"))
    meminfo.write_text("nothing\n")
    assert {} == FreeNow().of(run_on("cpu"))


def test_a_rank_without_a_device_is_left_out() -> None:
    run = run_on("cpu")
    bare = tuple(msgspec.structs.replace(process, device=None) for process in run.processes)

    assert {} == FreeNow().of(msgspec.structs.replace(run, processes=bare))
