"""NVML's process list, as NVML gives it, with what /proc shows of each process; a long one is cut and says so."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.agent import process
from sglang_probe.agent.health import Health
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.process import MAX_NAME, MAX_PROCESSES, describe, holders
from sglang_probe.agent.readings import Readings
from sglang_probe.catalogue.targets import Target
from sglang_probe.events.names import MAX_LINE_BYTES
from tests.agent.devices import UUID, Cuda, FakeNvml

NOBODY = 1 << 30
"""Above every pid of Linux (2^22)."""


@pytest.fixture
def sleeper() -> Iterator[Callable[..., int]]:
    """Start a process that lives until the test ends; return its pid once it has its name."""
    started = []

    def start(*command: str) -> int:
        child = subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    yield start
    for child in started:
        child.communicate()


def test_a_process_is_described_by_what_proc_shows(sleeper: Callable[..., int]) -> None:
    pid = sleeper(sys.executable, "-c", "print(flush=True); input()")
    found = describe(pid)
    assert (found["parent"], found["user"]) == (os.getpid(), getpass.getuser())
    assert found["start_ticks"] == process.start_ticks(pid)
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        assert found["name"] == file.read().strip()


@contextmanager
def shell(*arguments: str) -> Iterator[int]:
    """Run a shell under these arguments, its own name among them."""
    child = subprocess.Popen(arguments, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"echo running\n")
    assert child.stdout.readline() == b"running\n"
    try:
        yield child.pid
    finally:
        child.communicate()


def test_the_title_that_a_process_gave_itself_is_its_name_secrets_taken_out() -> None:
    title = "sglang::scheduler_DP0_TP1"  # longer than the 15 bytes of a command name
    with shell(title) as pid:
        assert describe(pid)["name"] == title
    with shell("worker password=hunter2hunter2") as pid:
        assert "hunter2" not in describe(pid)["name"]


def test_a_command_with_arguments_is_no_title() -> None:
    with shell("server", "-s") as pid, open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        assert describe(pid)["name"] == file.read().strip() != "server"


def test_a_process_that_is_not_visible_here_keeps_its_pid_and_bytes() -> None:
    unseen = {"start_ticks": None, "name": None, "user": None, "parent": None}
    assert holders([(NOBODY, 5)]) == ([{"pid": NOBODY, "bytes": 5, **unseen}], None)


def test_an_owner_without_a_name_is_a_number() -> None:
    assert process._user_name(NOBODY) == str(NOBODY)


def test_of_very_many_processes_the_largest_and_this_one_are_kept_and_the_rest_is_summed() -> None:
    held = [(NOBODY + size, size) for size in range(10 * MAX_PROCESSES)] + [(os.getpid(), None)]
    kept, left_out = holders(held)
    largest = sorted(size for _, size in held if size is not None)[-(MAX_PROCESSES - 1) :]
    assert [one["pid"] for one in kept if one["bytes"] is None] == [os.getpid()]
    assert sorted(one["bytes"] for one in kept if one["bytes"] is not None) == largest
    assert left_out == {"count": len(held) - MAX_PROCESSES, "bytes": sum(size or 0 for _, size in held) - sum(largest)}


@given(st.text())
def test_a_name_takes_little_of_a_line_whatever_is_in_it(name: str) -> None:
    assert len(json.dumps(process._short(name))) <= 2 * MAX_NAME + 2


def test_thousands_of_processes_break_no_event(
    probe: Any, target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[int, int | None] = {NOBODY + i: 1 << 40 for i in range(5000)}
    monkeypatch.setitem(sys.modules, "torch", Cuda({0}).as_torch())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(held=held))
    monkeypatch.setattr(process, "describe", lambda _: {"start_ticks": 1 << 40, "name": "é" * 10, "user": "é" * 10})

    def fail() -> None:
        raise RuntimeError("\x00é" * 10_000)

    probe.agent.identity.use_device("cuda", 0)
    module = probe.hook([target("fail")], fail=fail)
    with pytest.raises(RuntimeError):
        module.fail()
    with open(probe.agent.writer.path(), "rb") as file:
        assert all(len(line) <= MAX_LINE_BYTES for line in file)
    error = probe.memory()[-1]
    reading = error["after"]
    assert len(reading["nvml_processes"]) == MAX_PROCESSES
    assert reading["nvml_processes_left_out"] == {"count": 5000 - MAX_PROCESSES, "bytes": (5000 - MAX_PROCESSES) << 40}
    assert "nvml_processes:list_cut" in {f"{one['source']}:{one['reason']}" for one in error["degraded"]}
    assert error["exception"]["type"] == "RuntimeError"


def test_a_list_is_kept_as_nvml_gives_it_even_where_none_of_its_pids_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health()
    monkeypatch.setitem(sys.modules, "torch", Cuda({0}).as_torch())
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(held={NOBODY: 7, NOBODY + 1: 9}))
    reading = Readings(health, Nvml(health)).read("cuda", 0, UUID, processes=True)
    assert [(one["pid"], one["bytes"]) for one in reading["nvml_processes"]] == [(NOBODY, 7), (NOBODY + 1, 9)]
    assert (reading["nvml_processes_left_out"], health.take()) == (None, [])
