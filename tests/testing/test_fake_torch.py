"""The fake torch and pynvml answer as the real ones do, side effects included."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sglang_probe.testing import GIB, MIB, Card, FakeGpus, installed

Make = Callable[..., FakeGpus]


@pytest.fixture
def gpus(make_gpus: Make) -> Iterator[FakeGpus]:
    """Two cards, on which this process's torch and pynvml are."""
    with installed(make_gpus(gpus=2, card=Card(cuda_total_bytes=80 * GIB))) as cards:
        yield cards


@pytest.fixture
def torch(gpus: FakeGpus) -> Any:
    import torch

    return torch


@pytest.fixture
def pynvml(gpus: FakeGpus) -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def test_nothing_is_initialised_at_first(torch: Any, gpus: FakeGpus) -> None:
    assert not torch.cuda.is_initialized()
    assert not torch._C._cuda_hasPrimaryContext(0)
    assert {} == torch.cuda.memory_stats_as_nested_dict(0)
    assert [{}, {}] == [gpu.processes for gpu in gpus]


def test_properties_initialise_cuda_without_a_context(torch: Any, gpus: FakeGpus) -> None:
    properties = torch.cuda.get_device_properties(1)
    assert (gpus.scenario.card.name, gpus[1].total) == (properties.name, properties.total_memory)
    assert gpus[1].uuid == f"GPU-{properties.uuid}"
    assert torch.cuda.is_initialized()
    assert not torch._C._cuda_hasPrimaryContext(1)
    assert {} == gpus[1].processes


def test_asking_a_device_for_its_memory_makes_a_context_there_and_the_record_says_so(
    torch: Any, gpus: FakeGpus
) -> None:
    assert (gpus[1].total - gpus.scenario.card.context_bytes, gpus[1].total) == torch.cuda.mem_get_info(1)
    torch.cuda.mem_get_info(1)
    assert [False, True] == [torch._C._cuda_hasPrimaryContext(device) for device in (0, 1)]
    asked = gpus.calls(name="torch.cuda.mem_get_info")
    assert [True, False] == [call.made_context for call in asked]
    assert {(1,)} == {call.arguments for call in asked}


def test_setting_a_device_makes_a_context_there(torch: Any, gpus: FakeGpus) -> None:
    torch.cuda.set_device(1)
    assert 1 == torch.cuda.current_device()
    assert {os.getpid(): gpus.scenario.card.context_bytes} == gpus[1].processes


def test_calls_are_recorded_with_the_module_that_made_them(torch: Any, pynvml: Any, gpus: FakeGpus) -> None:
    torch.cuda.empty_cache()
    pynvml.nvmlSystemGetDriverVersion()
    names = ["pynvml.nvmlInit", "torch.cuda.empty_cache", "pynvml.nvmlSystemGetDriverVersion"]
    assert names == [call.name for call in gpus.calls(caller=__name__)]
    assert [] == gpus.calls(caller="sglang_probe.agent")


def test_a_tensor_lives_on_the_card_as_long_as_it_lives(torch: Any, gpus: FakeGpus) -> None:
    torch.cuda.set_device(0)
    before = gpus[0].free
    tensor = torch.zeros((4, 1024, 1024), dtype=torch.float32, device="cuda")
    assert (4 * MIB, 4, 16 * MIB) == (tensor.numel(), tensor.element_size(), tensor.nbytes)
    assert 16 * MIB == torch.cuda.memory_allocated() == before - gpus[0].free
    del tensor
    assert (0, 16 * MIB) == (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    torch.cuda.empty_cache()
    assert before == gpus[0].free
    allocated = torch.cuda.memory_stats_as_nested_dict(0)["allocated_bytes"]["all"]
    assert {"current": 0, "peak": 16 * MIB, "allocated": 16 * MIB, "freed": 16 * MIB} == allocated
    assert 16 * MIB == torch.cuda.memory_stats(0)["reserved_bytes.all.peak"]


def test_out_of_memory_is_torchs_own_error_with_its_figures(torch: Any, gpus: FakeGpus) -> None:
    gpus[0].add_process(pid=114880, size=70 * GIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(20 * GIB, dtype=torch.uint8, device="cuda:0")
    assert isinstance(caught.value, RuntimeError)
    assert torch.OutOfMemoryError is torch.cuda.OutOfMemoryError
    assert "torch.OutOfMemoryError" == f"{type(caught.value).__module__}.{type(caught.value).__name__}"
    message = str(caught.value)
    assert "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 80.00 GiB" in message
    assert "Process 114880 has 70.00 GiB memory in use." in message
    assert torch.cuda.memory_stats_as_nested_dict(0)["num_ooms"] == 1


def test_a_captured_graph_keeps_its_pool_and_calls_made_meanwhile_are_marked(torch: Any, gpus: FakeGpus) -> None:
    torch.cuda.set_device(0)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert torch.cuda.is_current_stream_capturing()
        held = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    assert not torch.cuda.is_current_stream_capturing()
    del held
    torch.cuda.empty_cache()
    private = [one for one in torch.cuda.memory_snapshot() if one["segment_pool_id"] != (0, 0)]
    assert [32 * MIB] == [one["total_size"] for one in private]
    assert [True, False] == [call.capturing for call in gpus.calls(name="torch.cuda.is_current_stream_capturing")]


def test_a_number_goes_through_a_float32_tensor_rounded(torch: Any) -> None:
    exact, rough = 1 << 36, (1 << 36) + 1
    assert exact == torch.tensor(exact, dtype=torch.float32).item()
    assert exact == torch.tensor(rough, dtype=torch.float32).item()
    assert rough == torch.tensor(rough, dtype=torch.int64).item()


def test_nvml_needs_no_context_and_makes_none(pynvml: Any, gpus: FakeGpus) -> None:
    gpus[1].add_process(pid=42, size=GIB)
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpus[1].uuid)
    info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    card = gpus.scenario.card
    assert (card.nvml_total_bytes, card.nvml_reserved_bytes, GIB) == (info.total, info.reserved, info.used)
    assert info.total == info.reserved + info.used + info.free
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(42, GIB)] == [(process.pid, process.usedGpuMemory) for process in listed]
    assert {} == gpus[0].processes


def test_nvmls_old_struct_counts_the_reserved_part_as_used(pynvml: Any, gpus: FakeGpus) -> None:
    info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert gpus.scenario.card.nvml_reserved_bytes == info.used == info.total - info.free


def test_nvml_errors_are_nvmls(pynvml: Any) -> None:
    with pytest.raises(pynvml.NVMLError, match="Not Found"):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError, match="Uninitialized"):
        pynvml.nvmlSystemGetDriverVersion()


@pytest.mark.parametrize(
    ("setting", "visible"), [("1", [1]), ("1,0", [1, 0]), ("0,9,1", [0]), ("", []), ("GPU-{uuid}", [1])]
)
def test_cuda_visible_devices_renumbers_the_devices(
    make_gpus: Make, monkeypatch: pytest.MonkeyPatch, setting: str, visible: list[int]
) -> None:
    gpus = make_gpus(gpus=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting.format(uuid=gpus[1].uuid.removeprefix("GPU-")))
    with installed(gpus):
        import torch

        assert len(visible) == torch.cuda.device_count()
        seen = [f"GPU-{torch.cuda.get_device_properties(device).uuid}" for device in range(len(visible))]
    assert [gpus[gpu].uuid for gpu in visible] == seen


def test_cuda_cannot_be_used_in_a_fork_of_a_process_that_used_it(torch: Any, gpus: FakeGpus) -> None:
    torch.cuda.mem_get_info(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.cuda.mem_get_info(0)
        except RuntimeError as error:
            os.write(writer, f"{torch.cuda.is_initialized()} {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000).startswith(b"False Cannot re-initialize CUDA in forked subprocess")
    os.close(reader)
    os.close(writer)


def test_the_fakes_leave_no_trace_and_what_was_there_before_comes_back(make_gpus: Make) -> None:
    stood = sys.modules["torch"] = type(sys)("torch")
    path = list(sys.path)
    before = dict(sys.modules)
    try:
        gpus = make_gpus()
        with installed(gpus):
            import torch

            assert torch is not stood
            torch.cuda.mem_get_info(0)
        assert stood is sys.modules["torch"]
        mimicked = {"fakegpu", "pynvml", "sglang"}
        now = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in mimicked}
        assert now == {name: module for name, module in before.items() if name.partition(".")[0] in mimicked}
        assert path == sys.path
        assert {} == gpus[0].processes
    finally:
        del sys.modules["torch"]


def test_without_cards_there_is_no_driver(make_gpus: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(make_gpus()):
        monkeypatch.delenv("SGLANG_PROBE_FAKE_GPUS")
        import pynvml
        import torch

        assert not torch.cuda.is_available()
        assert not torch.cuda.is_initialized()
        with pytest.raises(pynvml.NVMLError, match="NVML Shared Library Not Found"):
            pynvml.nvmlInit()
        with pytest.raises(RuntimeError, match="SGLANG_PROBE_FAKE_GPUS names no directory"):
            torch.cuda.mem_get_info(0)
