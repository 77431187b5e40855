"""One run id for all processes of a launch, and never one for two."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sglang_probe.agent.process import ProcessKey, is_alive, start_ticks, this_process
from sglang_probe.agent.runs import join_run
from sglang_probe.events.variables import DIRECTORY, RUN_ID, RUN_MAKER


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {DIRECTORY: str(tmp_path)}


def dead_process() -> ProcessKey:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        started = start_ticks(child.pid)
    return ProcessKey(this_process().boot_id, child.pid, started)


def test_the_first_process_makes_an_id_that_its_child_joins(environ: dict[str, str]) -> None:
    first = join_run(environ)
    child = join_run(environ, replace(this_process(), pid=os.getpid() + 1, start_ticks=1))
    assert first.made_here and not child.made_here
    assert first.run_id == child.run_id == environ[RUN_ID]


def test_a_process_that_asks_again_is_still_the_maker(environ: dict[str, str]) -> None:
    assert join_run(environ) == join_run(environ)


def test_an_id_whose_maker_is_gone_is_not_used_again(environ: dict[str, str]) -> None:
    old = join_run(environ, dead_process())
    new = join_run(environ)
    assert new.made_here and new.run_id != old.run_id


def test_the_users_own_id_wins_and_outlives_the_process_that_claimed_it(environ: dict[str, str]) -> None:
    environ[RUN_ID] = "mine"
    first = join_run(environ, dead_process())
    orphan = join_run(environ)
    assert (first.run_id, first.made_here) == ("mine", True)
    assert (orphan.run_id, orphan.made_here) == ("mine", False)


def test_a_relative_directory_is_fixed_by_the_first_process(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ[DIRECTORY] = "here"
    monkeypatch.chdir(tmp_path)
    first = join_run(environ)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert join_run(environ).directory == first.directory == str(tmp_path / "here")


@pytest.mark.parametrize("hostile", ["../up", "/abs", "a/b", "..", ".", "a\nb", "\0"])
def test_a_run_id_cannot_lead_out_of_the_directory(environ: dict[str, str], hostile: str) -> None:
    environ[RUN_ID] = hostile
    run = join_run(environ)
    assert Path(run.path).resolve().parent == Path(run.directory)
    assert run.path != run.directory


@pytest.mark.parametrize("maker", ["", "x", "a b c d", "a 1 2", "- 0 - made", "a 1 2 3 4"])
def test_a_maker_that_cannot_be_read_is_no_reason_to_fail(environ: dict[str, str], maker: str) -> None:
    environ |= {RUN_ID: "id", RUN_MAKER: maker}
    assert join_run(environ).run_id


def test_this_process_is_alive_and_one_with_another_start_is_not() -> None:
    me = this_process()
    assert is_alive(me)
    assert not is_alive(replace(me, start_ticks=(me.start_ticks or 0) + 1))
    assert not is_alive(replace(me, boot_id="another boot"))
    assert not is_alive(dead_process())


def test_a_zombie_runs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        key = ProcessKey(this_process().boot_id, child.pid, start_ticks(child.pid))
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(child.pid) == key.start_ticks
        assert not is_alive(key)
