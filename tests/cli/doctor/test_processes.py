"""Which processes of a machine are SGLang's, what has been left over, and where the probe is: on a /proc of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.cli.checks.processes import process_facts, sglang_part
from sglang_probe.cli.checks.servers import age, judge_servers

LAUNCH = ["python3", "-m", "sglang.launch_server", "--tp", "2"]
SCHEDULER = ["sglang::scheduler_TP0"]


class Machine:
    """A /proc with the processes that a test puts there; process 1 takes in what others leave."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory
        self.start(1, 0, ["/sbin/tini", "--", "run.sh"])

    def start(self, pid: int, parent: int, argv: list[str], environ: dict[str, str] | None = None) -> Path:
        home = self.proc / str(pid)
        (home / "fd").mkdir(parents=True)
        (home / "cmdline").write_bytes("".join(f"{word}\0" for word in argv).encode())
        (home / "comm").write_text(argv[0][:15] + "\n")
        (home / "stat").write_text(f"{pid} (a ) b) S {parent} " + "0 " * 17 + "100 0\n")
        variables = {"PATH": "/bin"} if environ is None else environ
        (home / "environ").write_bytes("".join(f"{k}={v}\0" for k, v in variables.items()).encode())
        return home

    def facts(self, *pids: int, me: int = -1) -> dict[int, dict[str, Any]]:
        found = process_facts(pids, self.proc, me)
        for one in found:
            one["gpus"] = []
        return {one["pid"]: one for one in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "proc")


def test_a_server_is_its_launcher_and_what_that_started(machine: Machine) -> None:
    machine.start(10, 1, LAUNCH)
    machine.start(11, 10, ["sglang::data_parallel_controller"])
    machine.start(12, 11, SCHEDULER)
    machine.start(13, 1, ["python3", "other.py"])

    found = machine.facts()

    assert found.keys() == {10, 11, 12}
    assert {pid: one["server"] for pid, one in found.items()} == {10: None, 11: 10, 12: 10}
    assert not any(one["orphaned"] for one in found.values())


def test_a_launcher_in_the_background_is_not_left_over(machine: Machine) -> None:
    """Its shell is gone, so process 1 is its parent: that is how servers are run."""
    machine.start(10, 1, LAUNCH)
    machine.start(11, 1, ["sglang::http_server/tokenizer_manager"])

    assert [one["orphaned"] for one in machine.facts().values()] == [None, None]


@pytest.mark.parametrize("reaper", [1, 5])
def test_schedulers_without_a_launcher_are_left_over(machine: Machine, reaper: int) -> None:
    machine.start(5, 1, ["/usr/lib/systemd/systemd", "--user"])
    machine.start(11, reaper, ["sglang::data_parallel_controller"])
    machine.start(12, 11, SCHEDULER)

    found = machine.facts()

    assert found[11]["orphaned"] is found[12]["orphaned"] is True
    assert [one.check for one in judge_servers(list(found.values()))] == ["left_over", "left_over"]


@pytest.mark.parametrize("first", [LAUNCH, ["/usr/bin/python3", "engine.py"], ["bash", "-c", "exec sglang serve"]])
def test_in_a_container_process_1_may_be_the_launcher(tmp_path: Path, first: list[str]) -> None:
    machine = Machine(tmp_path / "container")
    (machine.proc / "1" / "cmdline").write_bytes("\0".join(first).encode())
    machine.start(12, 1, SCHEDULER)

    assert machine.facts()[12]["orphaned"] is False


def test_a_users_own_script_with_an_engine_is_a_server_too(machine: Machine) -> None:
    machine.start(10, 1, ["python3", "mine.py"])
    machine.start(12, 10, SCHEDULER)

    found = machine.facts()

    assert found[10]["sglang"] == "launcher"
    assert found[12]["orphaned"] is False


def test_an_open_file_of_events_proves_the_probe(machine: Machine, tmp_path: Path) -> None:
    machine.start(10, 1, LAUNCH)
    fd = machine.start(12, 10, SCHEDULER, {}) / "fd"
    (fd / "3").symlink_to(tmp_path / "run" / "host.99.5.jsonl")  # of another process: handed on
    before = machine.facts()[12]["probe"]
    (fd / "4").symlink_to(tmp_path / "run" / "host.12.5.jsonl")

    found = machine.facts()

    assert before is None
    assert (found[12]["probe"], found[12]["run"]) == (True, str(tmp_path / "run"))
    assert "the probe is in it" in judge_servers(list(found.values()))[0].says


@pytest.mark.parametrize(
    ("environ", "probe"),
    [
        ({"PATH": "/bin"}, False),
        ({"PATH": "/bin", "PYTHONPATH": "{doorbell}"}, None),
        ({"PATH": "/bin", "PYTHONPATH": "/nowhere:{doorbell}", "SGLANG_PROBE": "0"}, False),
        ({"PATH": "/bin", "PYTHONPATH": "/nowhere"}, False),
        ({}, None),
    ],
)
def test_without_one_the_environment_can_only_rule_it_out(
    machine: Machine, tmp_path: Path, environ: dict[str, str], probe: bool | None
) -> None:
    doorbell = tmp_path / "sitecustomize" / "__init__.py"
    doorbell.parent.mkdir()
    doorbell.write_text("import sglang_probe")
    machine.start(10, 1, LAUNCH, {name: value.format(doorbell=tmp_path) for name, value in environ.items()})

    assert machine.facts()[10]["probe"] is probe


def test_a_pid_that_is_gone_or_a_zombie_is_not_visible(machine: Machine) -> None:
    (machine.start(10, 1, ["python3"]) / "stat").write_text("10 (python3) Z 1 0\n")

    found = machine.facts(10, 11)

    assert [found[pid]["visible"] for pid in (10, 11)] == [False, False]


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (LAUNCH, "launcher"),
        (["/opt/venv/bin/python", "-X", "dev", "-Bm", "sglang.bench_one_batch"], "launcher"),
        (["/opt/venv/bin/python3.11", "/opt/venv/bin/sglang", "serve"], "launcher"),
        (["python", "/src/python/sglang/launch_server.py"], "launcher"),
        (["sglang::http_server/multi_tokenizer_router"], "launcher"),
        (["sglang::scheduler_TP0 "], "sglang::scheduler_TP0"),
        (["vim", "sglang/launch_server.py"], None),
        (["python", "-m", "pytest", "sglang"], None),
        (["python", "-c", "import sglang.launch_server"], None),
        (["sglang-probe", "doctor", "--", "python", "-m", "sglang.launch_server"], None),
        ([], None),
    ],
)
def test_what_a_command_line_is_to_sglang(argv: list[str], part: str | None) -> None:
    assert sglang_part(argv) == part


@given(st.lists(st.text(max_size=12), max_size=9))
def test_any_command_line_has_an_answer(argv: list[str]) -> None:
    assert sglang_part(argv) is None or "sglang" in " ".join(argv)


def test_this_very_machine_can_be_looked_at(tmp_path: Path) -> None:
    """A real process with a title of SGLang's, found in the real /proc with its owner and age."""
    words = ["sglang::scheduler_TP7", "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(words, executable=sys.executable)
    try:
        until = time.monotonic() + 10
        found: list[dict[str, Any]] = []
        while not found and time.monotonic() < until:
            found = [one for one in process_facts([]) if one["pid"] == process.pid]
    finally:
        process.kill()
        process.wait(timeout=60)

    assert found[0]["sglang"] == "sglang::scheduler_TP7"
    assert found[0]["parent"] == os.getpid()
    assert found[0]["orphaned"] is False
    assert 0 <= found[0]["age_s"] < 60


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (1e6, "12 d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_the_command_that_asks_about_a_server_and_those_around_it_are_none(machine: Machine) -> None:
    asking = ["python3", "sglang-probe", "doctor", "--", *LAUNCH]
    machine.start(20, 1, ["python3", "-m", "wrapper", *LAUNCH])
    machine.start(21, 20, asking)
    machine.start(22, 21, LAUNCH)
    machine.start(30, 1, LAUNCH)

    assert machine.facts(me=21).keys() == {30}


def test_a_script_that_asks_beside_its_own_engine_is_a_server(machine: Machine) -> None:
    machine.start(10, 1, ["python3", "mine.py"])
    machine.start(12, 10, SCHEDULER)
    machine.start(13, 10, ["python3", "sglang-probe", "doctor"])

    assert machine.facts(me=13)[10]["sglang"] == "launcher"


def test_no_server_is_said(machine: Machine) -> None:
    (said,) = judge_servers(list(machine.facts().values()))

    assert (said.check, said.state) == ("servers", "ok")
