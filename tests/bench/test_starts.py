"""The scripts that start servers, on a stand-in for SGLang: they compare, record, and leave nothing running."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import failures, observer
from bench.cards import Cards
from bench.scenarios import Scenario, healthy
from bench.served import ROOT, Subject


def assert_nothing_runs(tmp_path: Path) -> None:
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    deadline = time.monotonic() + 10
    while [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, "a process outlived the script"
        time.sleep(0.05)


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def observed(tmp_path: Path, stand_in: Path, *more: str) -> int:
    words = ["--python", str(stand_in), "--model", "m", "--no-warm-up", "--pairs", "1"]
    places = ["--keep", str(tmp_path / "kept"), "--json", str(tmp_path / "told.json")]
    return observer.main([*words, *places, *more])


@pytest.mark.parametrize(("way", "code"), [("", 0), ("differs", 1)])
def test_observer_says_by_its_exit_code_whether_the_server_is_the_same(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch, way: str, code: int
) -> None:
    monkeypatch.setenv("WAY", way)
    assert code == observed(tmp_path, stand_in)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["differs"] is bool(code)
    assert [start["probed"] for start in told["starts"]] == [False, True]
    assert_nothing_runs(tmp_path)


@pytest.mark.parametrize(
    ("way", "says"), [("fails", "the server without the probe ended before"), ("hangs", "not ready in 2 s")]
)
def test_a_server_that_does_not_get_ready_is_said_and_ended(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    way: str, says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("WAY", way)
    assert observed(tmp_path, stand_in, "--start-limit", "2") == 2
    assert says in capsys.readouterr().err
    assert_nothing_runs(tmp_path)


def test_a_scenario_leaves_its_folder_and_is_not_played_twice(
    tmp_path: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "out"), "--python", str(stand_in), "--model", "m", "--only", "car"]
    assert failures.main(words) == 1  # the stand-in's event makes no run that is ready
    (told,) = failures.recorded(tmp_path / "out")
    assert (told["name"], told["answers"], told["as_expected"]) == ("car", [[11], [11]], False)
    assert (tmp_path / "out" / "car" / "events" / "car" / "h.1.1.jsonl").exists()
    starts = (tmp_path / "pids").read_text()
    assert failures.main(words) == 1
    assert starts == (tmp_path / "pids").read_text()
    assert_nothing_runs(tmp_path)


def test_a_scenario_for_which_no_time_is_left_is_not_begun(
    tmp_path: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "out"), "--python", str(stand_in), "--model", "m", "--only", "car", "--limit", "5"]
    assert failures.main(words) == 0
    assert "not played" in capsys.readouterr().out
    assert not (tmp_path / "pids").exists()


def test_a_scenario_that_the_limit_cut_short_is_played_again(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario("brief", "begun, however little time is left", healthy, seconds=0)
    subject, told = Subject(str(stand_in), "m"), argparse.Namespace(out=tmp_path / "out", each=60.0, limit=1.0)
    monkeypatch.setenv("WAY", "hangs")
    (cut,) = failures.play([scenario], subject, Cards(), told)
    assert cut["as_expected"] is None
    assert "cut short by --limit" in capsys.readouterr().out
    monkeypatch.setenv("WAY", "")
    told.limit = 60.0
    (played,) = failures.play([scenario], subject, Cards(), told)
    assert (played["answers"], played["error"]) == ([[11], [11]], None)
    assert_nothing_runs(tmp_path)


@pytest.mark.parametrize("cards", [0, 1, 2])
def test_scenarios_that_need_more_gpus_than_there_are_are_left_out(cards: int) -> None:
    played = failures.chosen([], [], cards)
    assert all(one.cards <= cards for one in played)
    killed = [one.name for one in played if one.name.startswith("sigkill")]
    assert killed == (["sigkill"] if cards else ["sigkill-pool"])


@pytest.mark.parametrize("words", [["--pairs", "0", "--model", "m"], ["--pairs", "1"]])
def test_bad_use_of_observer_is_one_clear_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        observer.main(words)
    assert ended.value.code == 2
    assert "observer.py: error: " in capsys.readouterr().err


@pytest.mark.parametrize("script", ["observer.py", "failures.py", "by_ranks.py", "scrub.py", "tenant.py"])
def test_every_script_runs_as_a_file_from_anywhere_and_explains_itself(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / script), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"bench/{script}" in done.stdout


def test_the_list_of_scenarios_names_each() -> None:
    command = [sys.executable, str(ROOT / "bench" / "failures.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [one.name for one in failures.SCENARIOS]
