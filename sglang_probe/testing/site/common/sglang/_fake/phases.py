"""The phases of a start: what the scenario says of them happens here, costs and faults alike."""

from __future__ import annotations

import os
import signal
import time

import torch
from fakegpu.cuda import cuda
from fakegpu.scenario import GIB, Costs, Fault, Scenario


class _Here:
    """Which rank this process is; data-parallel replicas are counted one after the other."""

    rank = 0


def become(rank: int) -> None:
    """Say which rank of the run this process is."""
    _Here.rank = rank


def scenario() -> Scenario:
    return cuda().ledger.scenario


def costs() -> Costs:
    """Return what the phases cost this rank."""
    return scenario().costs_of(_Here.rank)


def enter(phase: str) -> None:
    """Enter a phase: tenants move, time passes, and a fault strikes where the scenario has one."""
    story = scenario()
    cuda().ledger.move_tenants(phase)
    time.sleep(story.phase_seconds.get(phase, 0))
    for fault in story.faults:
        if fault.hits(phase, _Here.rank):
            _strike(fault)


def charge(size: int, label: str) -> None:
    """Take `size` bytes outside torch, as a library does. Raises RuntimeError where the card has no room."""
    if size:
        with cuda().label(label):
            cuda().charge(cuda().current, size)


def hold(size: int, label: str, pieces: int = 1) -> list[torch.Tensor]:
    """Take `size` bytes as `pieces` tensors. Raises torch.OutOfMemoryError where the card has no room."""
    with cuda().label(label):
        sizes = [size // pieces + (size % pieces if piece == 0 else 0) for piece in range(pieces)]
        return [torch.empty(one, dtype=torch.uint8, device="cuda") for one in sizes if one]


def _strike(fault: Fault) -> None:
    if fault.kind == "oom":
        torch.empty(cuda().ledger.free(cuda().use(cuda().current)) + GIB, dtype=torch.uint8, device="cuda")
    elif fault.kind == "hang":
        wait_while_parent_lives()
    elif fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "exit":
        os._exit(fault.exit_code)
    else:
        raise RuntimeError(f"the scenario lets this rank fail in {fault.phase}")


def wait_while_parent_lives() -> None:
    """Sleep until the process that started this one is gone, then end."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
    os._exit(1)
