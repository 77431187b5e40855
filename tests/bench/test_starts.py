"""The scripts that start servers, on a stand-in for SGLang: they compare, record, and leave nothing running."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import failures, observer
from bench.scenarios import SCENARIOS
from bench.served import ROOT

STAND_IN = '''
import http.server, json, os, pathlib, subprocess, sys, time
if "sglang.launch_server" not in sys.argv:
    sys.exit(3)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(os.environ["STAND_IN"]).open("a").write(f"{os.getpid()} {child.pid}\\n")
way, probed = os.environ.get("WAY", ""), "SGLANG_PROBE_DIR" in os.environ
if way == "fails":
    sys.exit("no memory")
if way == "hangs":
    time.sleep(600)
tokens = 7 if probed and way == "differs" else 6
print(f"max_total_num_tokens={tokens}", flush=True)
if probed:
    run = pathlib.Path(os.environ["SGLANG_PROBE_DIR"], os.environ.get("SGLANG_PROBE_RUN_ID", "run"))
    run.mkdir(parents=True)
    run.joinpath("h.1.1.jsonl").write_text('{"event":"e","pid":1,"mono_ns":1,"kind":null}\\n')
class Answers(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"meta_info": {"output_token_logprobs": [[0.0, 11, None]]}}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers)
print("The server is fired up and ready to roll!", file=sys.stderr, flush=True)
server.serve_forever()
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an executable that serves as `PYTHON -m sglang.launch_server` would."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{tmp_path}/stand_in.py" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("STAND_IN", str(tmp_path / "pids"))
    return script


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


@pytest.mark.parametrize("script", ["observer.py", "failures.py", "scrub.py", "tenant.py"])
def test_every_script_runs_as_a_file_from_anywhere_and_explains_itself(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / script), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"bench/{script}" in done.stdout


def test_the_list_of_scenarios_names_each() -> None:
    command = [sys.executable, str(ROOT / "bench" / "failures.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [one.name for one in SCENARIOS]
