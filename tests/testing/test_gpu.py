"""FakeGpu: a card that several processes share, that foreign ones hold too, and that can run out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_probe.testing import GIB, MIB, Card, FakeGpus, OutOfDeviceMemory, Scenario, Taken, Tenant, make_site

Make = Callable[..., FakeGpus]


def in_a_process(gpus: FakeGpus, code: str, site: Path) -> subprocess.Popen[str]:
    """Run `code` in another process that has these cards; it may talk through its standard streams."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(site), **gpus.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD = """
import torch
held = torch.empty({size}, dtype=torch.uint8, device="cuda:{device}")
print("held", flush=True)
input()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_site(tmp_path / "site", "0.5.14")


def test_an_idle_card_is_wholly_free(make_gpus: Make) -> None:
    card = Card()
    assert [card.cuda_total_bytes] * 3 == [gpu.free for gpu in make_gpus(gpus=3)]


def test_a_foreign_process_takes_memory_and_gives_it_back(make_gpus: Make) -> None:
    gpu = make_gpus()[0]
    gpu.add_process(pid=114880, size=3 * GIB)
    assert {114880: 3 * GIB} == gpu.processes
    assert gpu.total - 3 * GIB == gpu.free
    gpu.remove_process(114880)
    assert gpu.total == gpu.free
    with pytest.raises(KeyError):
        gpu.remove_process(114880)


def test_the_tenants_of_a_scenario_are_there_from_the_start(make_gpus: Make) -> None:
    gpus = make_gpus(gpus=2, tenants=(Tenant(gpu=1, pid=7, bytes=GIB),))
    assert [{}, {7: GIB}] == [gpu.processes for gpu in gpus]


def test_a_full_card_refuses_and_records_nothing(make_gpus: Make) -> None:
    gpus = make_gpus()
    with pytest.raises(OutOfDeviceMemory):
        gpus[0].add_process(pid=1, size=gpus[0].total + 1)
    assert [] == gpus.records()


def test_a_card_that_is_not_there_is_named(make_gpus: Make) -> None:
    with pytest.raises(IndexError, match="there are 2 fake GPUs, numbered from 0; 2 is none of them"):
        make_gpus(gpus=2)[2]


def test_a_process_holds_its_context_and_its_tensors_until_it_dies(make_gpus: Make, site: Path) -> None:
    gpus = make_gpus(gpus=2)
    process = in_a_process(gpus, HOLD.format(size=64 * MIB, device=1), site)
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    held = {process.pid: gpus.scenario.card.context_bytes + 64 * MIB}
    assert [{}, held] == [gpu.processes for gpu in gpus]
    process.kill()
    process.communicate()
    assert [{}, {}] == [gpu.processes for gpu in gpus]


def test_what_a_dead_process_took_stays_on_record(make_gpus: Make, site: Path) -> None:
    gpus = make_gpus()
    process = in_a_process(gpus, HOLD.format(size=64 * MIB, device=0), site)
    process.communicate("\n")
    assert Taken(gpus.scenario.card.context_bytes, 0) == gpus.taken(gpu=0, pid=process.pid)["cuda_context"]
    taken = [record for record in gpus.records(pid=process.pid) if record.backing == "tensor"]
    assert 64 * MIB == taken[0].torch_bytes


def test_two_processes_cannot_take_more_than_there_is(make_gpus: Make, site: Path) -> None:
    card = Card(cuda_total_bytes=2 * GIB, context_bytes=100 * MIB)
    gpus = make_gpus(card=card)
    first = in_a_process(gpus, HOLD.format(size=GIB, device=0), site)
    assert first.stdout is not None
    first.stdout.readline()
    second = in_a_process(
        gpus,
        "import torch\ntry: torch.empty(1 << 30, device='cuda', dtype=torch.uint8)\n"
        "except torch.OutOfMemoryError as error: print(error)",
        site,
    )
    said, _ = second.communicate()
    first.communicate("\n")
    assert said.startswith("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 2.00 GiB")
    assert f"Process {first.pid} has 1.10 GiB memory in use" in said


def test_cards_are_the_same_from_every_handle(make_gpus: Make) -> None:
    gpus = make_gpus()
    with FakeGpus(gpus.directory) as again:
        again[0].add_process(pid=5, size=GIB)
    assert {5: GIB} == gpus[0].processes


def test_cards_are_not_made_over_others(make_gpus: Make) -> None:
    gpus = make_gpus()
    with pytest.raises(FileExistsError, match="holds fake GPUs already"):
        FakeGpus.create(gpus.directory)


def test_uuids_are_spelled_as_nvml_spells_them_and_differ(make_gpus: Make) -> None:
    uuids = [gpu.uuid for gpu in make_gpus(gpus=8)]
    assert len(set(uuids)) == 8
    assert all(uuid.startswith("GPU-") and len(uuid) == len("GPU-") + 36 for uuid in uuids)


@settings(max_examples=25, deadline=None)
@given(moves=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(1, GIB)), max_size=12))
def test_free_and_held_always_make_up_the_card(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int, int]]
) -> None:
    with FakeGpus.create(tmp_path_factory.mktemp("gpus"), Scenario(gpus=2)) as gpus:
        for index, pid, size in moves:
            gpus[index].add_process(pid=pid, size=size)
        for gpu in gpus:
            assert gpu.total == gpu.free + sum(gpu.processes.values())
            mine = [size for card, _, size in moves if card == gpu.index]
            assert sum(mine) == sum(record.device_bytes for record in gpus.records(gpu=gpu.index))
