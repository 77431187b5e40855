"""Whether a process still runs is said only where this machine can know it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sglang_probe.collect import read
from sglang_probe.timeline import ProcessId, build, is_alive
from tests.collect.building import Host, Writer
from tests.collect.starting import Shape, rank, rank_of, write

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="liveness is read from /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until it is ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def _id_of(pid: int) -> ProcessId:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ProcessId(
        host=socket.gethostname(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        pid=pid,
        start_ticks=int(stat[19]),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
    )


def test_a_running_process_is_alive_and_an_ended_one_is_not(child: subprocess.Popen[bytes]) -> None:
    process = _id_of(child.pid)

    assert is_alive(process) is True
    child.kill()
    child.wait()
    assert is_alive(process) is False


def test_a_rank_that_was_killed_on_this_machine_has_died(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process = _id_of(child.pid)
    writer = Writer(Host(process.host, process.boot_id or ""), process.pid, start_ticks=process.start_ticks)
    writer.start(pid_namespace=process.pid_namespace)
    writer.rank = rank_of(0, 1)
    directory = write(tmp_path, [rank(writer, Shape(stop_in="weights.load"))])

    assert ["starting"] == [run.outcome for run in build(read([directory])).runs]
    child.kill()
    child.wait()
    assert [("died", "weights.load")] == [(run.outcome, run.failed_phase) for run in build(read([directory])).runs]


def test_a_process_that_ended_and_was_not_yet_reaped_is_gone(child: subprocess.Popen[bytes]) -> None:
    process = _id_of(child.pid)

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert is_alive(process) is False


def test_another_process_with_the_same_pid_is_not_that_process() -> None:
    me = _id_of(os.getpid())

    assert is_alive(msgspec.structs.replace(me, start_ticks=(me.start_ticks or 0) + 1)) is False


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "elsewhere"},
        {"boot_id": "another"},
        {"boot_id": None},
        {"pid_namespace": "pid:[1]"},
        {"start_ticks": None},
    ],
    ids=str,
)
def test_what_this_machine_cannot_know_is_unknown(elsewhere: dict[str, str | None]) -> None:
    assert is_alive(msgspec.structs.replace(_id_of(os.getpid()), **elsewhere)) is None


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_a_pid_that_cannot_be_is_gone(pid: int) -> None:
    assert is_alive(msgspec.structs.replace(_id_of(os.getpid()), pid=pid)) is False
