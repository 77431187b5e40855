"""`sglang-probe doctor` on GPUs: what NVML says in the Python that would run SGLang, and who can be named."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.cli.checks import gpus
from sglang_probe.cli.checks.model import Check
from sglang_probe.cli.checks.servers import judge_servers
from sglang_probe.testing import GIB, MIB, FakeGpus, Scenario, make_site

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Ask = Callable[..., dict[str, Any]]

STRANGER = 4_194_400
"""No process of Linux can have this pid: it is over the highest."""


@pytest.fixture
def cards(tmp_path: Path) -> FakeGpus:
    return FakeGpus.create(tmp_path / "gpus", Scenario(gpus=2))


@pytest.fixture
def ask(probe: Probe) -> Ask:
    """Run the doctor on this Python and return what it says."""

    def run(*options: str, env: dict[str, str], flags: tuple[str, ...] = ()) -> dict[str, Any]:
        done = probe("doctor", "--format", "json", *options, "--", sys.executable, *flags, env=env)
        assert done.stderr == ""
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


@pytest.fixture
def fake(ask: Ask, cards: FakeGpus, tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Run the doctor where there is a fake SGLang with fake GPUs."""
    site = make_site(tmp_path / "site", "0.5.14")
    return lambda: ask(env={"PYTHONPATH": str(site), **cards.environment})


def named(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in document["checks"] if one["check"] == name]


def test_every_gpu_is_told_by_its_uuid_with_what_is_free(fake: Callable[[], dict[str, Any]], cards: FakeGpus) -> None:
    said = fake()

    assert [one["uuid"] for one in said["gpus"]] == [card.uuid for card in cards]
    assert [one["free_bytes"] for one in said["gpus"]] == [card.free for card in cards]
    assert [one["facts"]["uuid"] for one in named(said, "gpu")] == [card.uuid for card in cards]
    assert named(said, "nvml")[0]["facts"]["driver"] == cards.scenario.driver_version
    assert said["works"] is True


def test_asking_makes_no_context_and_imports_no_torch(fake: Callable[[], dict[str, Any]], cards: FakeGpus) -> None:
    fake()

    assert cards.calls()
    assert {call.name.partition(".")[0] for call in cards.calls()} == {"pynvml"}
    assert cards.records() == []


def test_who_holds_memory_is_named_with_what_it_holds(fake: Callable[[], dict[str, Any]], cards: FakeGpus) -> None:
    cards[0].add_process(os.getpid(), 3 * GIB)
    cards[1].add_process(os.getpid(), GIB)

    said = fake()

    (found,) = named(said, "gpu_process")
    (process,) = (one for one in said["processes"] if one["pid"] == os.getpid())
    assert found["state"] == "warning"
    assert found["facts"] == {"pid": os.getpid(), "bytes": {cards[0].uuid: 3 * GIB, cards[1].uuid: GIB}}
    assert f"{4 * GIB // MIB} MiB" in found["says"]
    assert process["gpus"] == [{"uuid": cards[0].uuid, "bytes": 3 * GIB}, {"uuid": cards[1].uuid, "bytes": GIB}]
    assert process["name"] == Path("/proc/self/comm").read_text().strip()
    assert said["works"] is True


def test_a_pid_that_is_nobody_here_is_never_named(fake: Callable[[], dict[str, Any]], cards: FakeGpus) -> None:
    cards[0].add_process(STRANGER, 3 * GIB)

    said = fake()

    (tenants,) = named(said, "tenants")
    assert tenants["facts"]["strangers"] == [STRANGER]
    assert "no tenant can be named" in tenants["says"]
    assert named(said, "gpu_process") == []


def test_an_nvml_that_hangs_costs_the_rest_nothing(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ndef nvmlInit():\n    time.sleep(60)\n")
    site = make_site(tmp_path / "site", "0.5.14")

    said = ask("--timeout", "8", env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(site)])})

    assert said["works"] is True
    assert named(said, "nvml")[0]["state"] == "warning"
    assert "does not answer" in named(said, "nvml")[0]["says"]


LIBRARY = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } Process;
static int put(char *to, unsigned room, const char *text) { strncpy(to, text, room); return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned room) { return put(to, room, "999.1"); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **to) { *to = (void *)(long)(at + 1); return at == 2 ? 15 : 0; }
int nvmlDeviceGetUUID(void *gpu, char *to, unsigned room) {
    return put(to, room, (long)gpu > 100 ? "MIG-1" : (long)gpu == 1 ? "GPU-1" : "GPU-2");
}
int nvmlDeviceGetName(void *gpu, char *to, unsigned room) { return put(to, room, "Card"); }
int nvmlDeviceGetMemoryInfo(void *gpu, Memory *to) {
    to->total = 80ULL << 30; to->used = 20ULL << 30; to->free = 60ULL << 30; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, Process *to) {
    *count = (long)gpu == 1; to->pid = 4194400; to->used = 5ULL << 30; return 0;
}
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *later) { *now = *later = (long)gpu == 2; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned at, void **to) { *to = (void *)101L; return at ? 6 : 0; }
"""
"""A driver's library with three GPUs: one with a tenant, one with a MIG device, one that is lost."""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")
@pytest.mark.skipif(ctypes.util.find_library("nvidia-ml") is not None, reason="a real driver is here")
def test_without_the_bindings_the_drivers_library_is_asked_itself(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "nvml.c").write_text(LIBRARY)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "nvml.c"], cwd=tmp_path, check=True, timeout=60
    )
    (tmp_path / "pynvml.py").write_text("raise ImportError('not for this test')")

    said = ask(env={"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})

    uuids = [(one["uuid"], one["mig"], one["parent_uuid"]) for one in said["gpus"]]
    assert uuids == [("GPU-1", False, None), ("GPU-2", True, None), ("MIG-1", True, "GPU-2")]
    assert {one["total_bytes"] for one in said["gpus"]} == {80 * GIB}
    assert said["gpus"][0]["processes"] == [{"pid": STRANGER, "bytes": 5 * GIB}]
    assert said["gpus"][0]["unlisted_bytes"] == 15 * GIB
    assert [one["state"] for one in named(said, "nvml")] == ["ok", "warning"]
    assert "cannot open its GPU 2" in named(said, "nvml")[1]["says"]


IDLE = {"index": 0, "uuid": "GPU-1", "name": "Card", "total_bytes": 80 * GIB, "mig": None, "reserved_apart": True}
HOST: dict[str, Any] = {
    "pid_namespace": f"pid:[{gpus.FIRST_PID_NAMESPACE}]",
    "nvidia_driver": True,
    "amd": {"device": False, "tools": []},
}
CONTAINER = {**HOST, "pid_namespace": "pid:[4026532841]"}


def nvml(used: int, *processes: tuple[int, int | None], **more: object) -> dict[str, Any]:
    listed = [{"pid": pid, "bytes": size} for pid, size in processes]
    gpu = {**IDLE, "used_bytes": used, "free_bytes": 80 * GIB - used, "processes": listed, **more}
    return {"source": "pynvml", "why_not": [], "driver": "570", "gpus": [gpu]}


def process(pid: int, **more: object) -> dict[str, Any]:
    known: dict[str, Any] = {
        "name": "python",
        "sglang": None,
        "user": "eve",
        "age_s": 60.0,
        "orphaned": None,
        "server": None,
        "gpus": [],
    }
    return {"pid": pid, "visible": True, "holds_device": True, **known, **more}


def says(checks: list[Check], name: str) -> str:
    return " | ".join(one.says for one in checks if one.check == name)


def test_used_memory_that_no_process_is_listed_for_is_somebodys() -> None:
    found = gpus.judge_gpus(nvml(60 * GIB), CONTAINER, [])

    assert f"{60 * GIB // MIB} MiB" in says(found, "tenants")
    assert "pid namespace of its own" in says(found, "tenants")


@pytest.mark.parametrize("used", [0, 4 * MIB])
def test_what_the_driver_keeps_for_itself_is_nobodys(used: int) -> None:
    assert says(gpus.judge_gpus(nvml(used), CONTAINER, []), "tenants") == ""


def test_where_a_process_hides_its_size_nothing_is_concluded_from_the_sum() -> None:
    (device,) = gpus.devices(nvml(60 * GIB, (7, None)))

    assert device["unlisted_bytes"] is None


@pytest.mark.parametrize(("machine", "is_named"), [(HOST, True), (CONTAINER, False)])
def test_a_pid_of_another_namespace_is_not_taken_for_the_process_that_has_it_here(
    machine: dict[str, Any], is_named: bool
) -> None:
    """Where pids are the host's, a process without an open device is only odd; elsewhere it is somebody else."""
    found = gpus.judge_gpus(nvml(GIB, (7, GIB)), machine, [process(7, holds_device=False)])

    assert ("pid 7, python" in says(found, "gpu_process")) is is_named
    assert (says(found, "tenants") == "") is is_named


def test_a_process_of_ours_is_named_in_a_container_too() -> None:
    found = gpus.judge_gpus(nvml(GIB, (7, GIB)), CONTAINER, [process(7)])

    assert "pid 7, python, of eve, up 1 min: holds 1024 MiB of GPU-1" in says(found, "gpu_process")


def test_a_pid_that_is_listed_twice_on_a_gpu_holds_both() -> None:
    listed = gpus.devices(nvml(3 * GIB, (7, GIB), (7, 2 * GIB)))

    assert gpus.holders(listed) == {7: {"GPU-1": 3 * GIB}}


def test_what_was_left_over_is_not_told_twice() -> None:
    """It has a check of its own, with what it holds."""
    left = process(7, orphaned=True, gpus=[{"uuid": "GPU-1", "bytes": GIB}], sglang="sglang::scheduler_TP0", parent=1)

    (told,) = judge_servers([left])

    assert says(gpus.judge_gpus(nvml(GIB, (7, GIB)), HOST, [left]), "gpu_process") == ""
    assert (told.check, told.state) == ("left_over", "warning")
    assert "holds 1024 MiB of 1 GPU" in told.says
    assert told.do == "if nobody needs it: kill 7"


@pytest.mark.parametrize(("server", "do"), [(5, "it is of the server of pid 5"), (None, "kill 7")])
def test_a_server_that_runs_is_not_to_be_killed_by_its_parts(server: int | None, do: str) -> None:
    found = gpus.judge_gpus(nvml(GIB, (7, GIB)), HOST, [process(7, server=server)])

    assert [do in (one.do or "") for one in found if one.check == "gpu_process"] == [True]


def test_a_driver_without_its_library_is_not_called_a_machine_without_gpus() -> None:
    nothing: dict[str, Any] = {"source": None, "why_not": ["pynvml: X"], "driver": None, "gpus": []}

    (with_driver,) = gpus.judge_gpus(nothing, HOST, [])
    (without,) = gpus.judge_gpus(nothing, {**HOST, "nvidia_driver": False}, [])

    assert (with_driver.state, without.state) == ("warning", "ok")
    assert "pynvml: X" in with_driver.says
    assert gpus.ON_A_CPU in without.says


def test_an_amd_machine_is_told_what_can_be_read_there() -> None:
    nothing: dict[str, Any] = {"source": None, "why_not": [], "driver": None, "gpus": []}
    amd = {**HOST, "nvidia_driver": False, "amd": {"device": True, "tools": ["rocm-smi"]}}

    assert [one.check for one in gpus.judge_gpus(nothing, amd, [])] == ["amd", "nvml"]
    assert gpus.ON_A_CPU not in says(gpus.judge_gpus(nothing, amd, []), "nvml")
