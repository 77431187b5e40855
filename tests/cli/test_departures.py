"""In which order processes are seen to go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sglang_probe.cli.departures import Departures
from sglang_probe.timeline.model import Process, Run
from tests.timeline.building import build_run

Living = list["subprocess.Popen[bytes]"]
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.fixture
def living() -> Iterator[Living]:
    """Two processes that live until they are ended."""
    words = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    with ExitStack() as stack:
        yield [stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE)) for _ in range(2)]


def run_of(living: Living, *, second_is_alive: bool = True) -> Run:
    names = (("launcher", None), ("scheduler", "TP0"))
    return build_run(
        tuple(
            Process(host=os.uname().nodename, boot_id=BOOT, pid=one.pid, start_ticks=start(one), role=role, label=label,
                    alive=role == "launcher" or second_is_alive)
            for one, (role, label) in zip(living, names, strict=True)
        ),
        "starting",
    )  # fmt: skip


def start(process: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("first", [0, 1])
def test_who_went_first_is_told(living: Living, first: int) -> None:
    departures = Departures()
    departures.take(run_of(living))
    names = ("launcher", "TP0")
    for place in (first, 1 - first):
        end(living[place])
        assert departures.rest(0.02)

    then, other = (f"{names[place]} (pid {living[place].pid})" for place in (first, 1 - first))
    assert departures.says().startswith(f"watch saw who went first: {then}; then {other} 0.")


def test_of_those_that_went_between_two_looks_or_before_the_first_no_order_is_told(living: Living) -> None:
    together, before = Departures(), Departures()
    together.take(run_of(living))
    before.take(run_of(living, second_is_alive=False))
    for one in living:
        end(one)

    assert (True, True) == (together.look(), before.look())
    assert ("", "") == (together.says(), before.says())
    assert not together.look()
