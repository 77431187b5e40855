"""The ledger of a fake server against what its cards say was taken from them, to the byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglang_probe.collect import read
from sglang_probe.testing import GIB, FakeGpus, FakeServer, Scenario
from sglang_probe.testing.core.scenario import Tenant
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Process
from tests.timeline.cards import rows
from tests.timeline.making import gone, ranks

DRAFT = ("--tp", "2", "--speculative-algorithm", "EAGLE")
PLAIN = ("--tp", "2")
STAYS = Tenant(gpu=1, pid=114880, bytes=3 * GIB, name="python3")
COMES = Tenant(gpu=1, pid=114880, bytes=3 * GIB, name="python3", arrives_at="graph.capture")
ROWS = {"cublas": "other_process", "other": "other_process"}
"""Labels of the cards that are not called as the ledger's row is."""
TORCH_ONLY = {"weights_target", "weights_draft", "kv_pool", "request_pool", "attention_workspace"}


@dataclass(frozen=True)
class Ran:
    gpus: FakeGpus
    processes: list[Process]


def ran(directory: Path, root: Path, release: str, flags: tuple[str, ...], *tenants: Tenant, named: bool) -> Ran:
    """Let a fake server start; `named` says its cards by UUID, so that NVML can be asked before there is a context."""
    scenario = Scenario(gpus=2, serve=False, tenants=tenants)
    environment = {"SGLANG_PROBE_DIR": str(directory / "runs")}
    server = FakeServer(
        directory, scenario, release=release, arguments=flags, pythonpath=[root], environment=environment
    )
    if named:
        server.environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in server.gpus)
    ended = server.run()
    (run,) = build(read([directory / "runs"]), alive=gone).runs
    return Ran(ended.gpus, ranks(run))


def truth(gpus: FakeGpus, gpu: int, pid: int) -> dict[str, int]:
    """Return what the cards say that each row of a process holds."""
    found: Counter[str] = Counter()
    for record in gpus.records(gpu=gpu, pid=pid):
        row = ROWS.get(record.label, record.label)
        if record.backing == "segment":
            found["torch_cached"] += record.device_bytes
        elif record.backing == "tensor":
            found["torch_cached"] -= record.torch_bytes
            found[row] += record.torch_bytes
        else:
            found["other_process" if row in TORCH_ONLY else row] += record.device_bytes
    return {row: size for row, size in found.items() if size}


def told(process: Process) -> dict[str, int | None]:
    """Return the rows of this process at its end that hold something."""
    outside = ("driver_reserved", "run_processes", "foreign", "free", "unexplained")
    return {row: size for row, size in rows(process.steps[0]).items() if size != 0 and row not in outside}


@pytest.mark.parametrize(("release", "flags"), [("0.5.9", PLAIN), ("0.5.14", DRAFT)], ids=["plain", "draft"])
@pytest.mark.parametrize("named", [False, True])
def test_every_row_of_a_rank_alone_on_its_card_is_what_the_card_lost(
    tmp_path: Path, root: Path, release: str, flags: tuple[str, ...], named: bool
) -> None:
    run = ran(tmp_path, root, release, flags, named=named)

    assert 2 == len(run.processes)
    for gpu, process in enumerate(run.processes):
        assert truth(run.gpus, gpu, process.pid or 0) == told(process)
        assert {0} == {rows(step)["unexplained"] for step in process.steps}


def test_a_tenant_takes_nothing_from_the_rows_and_is_foreign_from_the_first_step_on(tmp_path: Path, root: Path) -> None:
    run = ran(tmp_path, root, "0.5.14", PLAIN, STAYS, named=True)

    _, process = run.processes
    assert truth(run.gpus, 1, process.pid or 0) == told(process)
    assert {(STAYS.bytes, 0)} == {(rows(step)["foreign"], rows(step)["unexplained"]) for step in process.steps}
    assert [(STAYS.pid, "foreign")] == [(one.pid, one.kind) for one in process.neighbours]


def test_a_tenant_that_comes_during_the_capture_makes_unknown_what_the_capture_took_and_no_more(
    tmp_path: Path, root: Path
) -> None:
    run = ran(tmp_path, root, "0.5.14", PLAIN, COMES, named=True)

    alone, process = run.processes
    truly, found = truth(run.gpus, 1, process.pid or 0), told(process)
    assert truth(run.gpus, 0, alone.pid or 0) == told(alone)
    lost = {row for row, size in found.items() if size is None}
    assert lost
    assert lost <= {"graphs", "other_process"}
    assert {row: size for row, size in truly.items() if row not in lost} == {
        row: size for row, size in found.items() if row not in lost
    }
    end = rows(process.steps[0])
    assert (COMES.bytes, sum(truly[row] for row in lost)) == (end["foreign"], end["unexplained"])
