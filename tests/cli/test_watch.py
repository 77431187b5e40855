"""Following a start live, as a user does: in a terminal, in a pipe, with a program."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_probe.cli.watch import NOT_KNOWN
from tests.cli.conftest import Probe, as_written, failed_start

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
READY = DATA / "h200-x2-sglang-0.5.14" / "car"
FAILED = DATA / "h200-x2-sglang-0.5.14-failures" / "oom-weights"
LOG = DATA / "h200-x2-sglang-0.5.14" / "car.log"
FACTOR = "0.02"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Start = Callable[..., "subprocess.Popen[str]"]
Replay = Callable[..., "subprocess.Popen[bytes]"]
WriteRun = Callable[..., Path]


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[Replay]:
    """Replay a recording into `runs/NAME` here; what still lives is ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(recording: Path, name: str, *words: str, factor: str = FACTOR) -> subprocess.Popen[bytes]:
        where = tmp_path / "runs" / name
        line = [sys.executable, str(ROOT / "bench" / "replay.py"), str(recording), str(where), "--factor", factor]
        started.append(subprocess.Popen([*line, *words], stdin=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.terminate()  # the processes that stand in wait for its end of a pipe
        process.communicate(timeout=60)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    assert err == ""
    return process.returncode, out


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_begun(directory: Path, phase: str) -> bool:
    return any(f'"sglang.memory.{phase}.begin"' in file.read_text() for file in directory.glob("runs/*/*.jsonl"))


def said(process: subprocess.Popen[str], word: str) -> str:
    """Read lines until one holds a word; return that line."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(word)


def test_a_start_that_comes_to_be_ready_is_followed_to_its_end(start: Start, replay: Replay) -> None:
    watching = start("watch", "runs")
    waited = said(watching, "waiting")
    replay(READY, "car", "--linger", "10")
    code, out = ended(watching)

    assert "waiting for a run in runs, which does not exist yet; start the server with" in waited
    assert code == 0
    assert "watching car, SGLang 0.5.14" in out
    assert re.search(r"\+\d+\.\d s  TP0(-|, )TP1 \(2\): weights\.load LlamaForCausalLM ended; took ", out)
    assert re.search(r"TP0(-|, )TP1 \(2\): (is|are) ready; took", out)
    assert "outcome   READY after" in out
    assert "\x1b" not in out


def test_a_start_that_fails_ends_with_what_explains_it(start: Start, replay: Replay) -> None:
    watching = start("watch", "runs")
    said(watching, "waiting")
    replay(FAILED, "oom", "--linger", "0")
    code, out = ended(watching)

    assert code == 1
    assert "weights.load failed; took" in out
    assert "outcome   FAILED in weights.load on TP1" in out
    assert "CAUSE: " in out


def test_a_rank_that_is_killed_is_missed_at_once(start: Start, replay: Replay) -> None:
    watching = start("watch", "runs")
    said(watching, "waiting")
    replay(READY, "car", "--kill", "TP1:graph.capture", "--until", "kv.nothing", "--linger", "0", factor="0.01")
    code, out = ended(watching)

    assert code == 1
    assert re.search(r"GONE .*TP1", out)
    assert "outcome   DIED in graph.capture" in out


def test_a_run_that_is_over_is_not_taken_for_the_one_to_come(
    start: Start, replay: Replay, write_run: WriteRun, tmp_path: Path
) -> None:
    write_run(tmp_path / "runs" / "night-1", over())
    watching = start("watch", "runs")
    waited = said(watching, "waiting")
    replay(READY, "car", "--linger", "10")
    code, out = ended(watching)

    assert "night-1 is over: FAILED in kv.profile" in waited
    assert "(sglang-probe explain runs/night-1)" in waited
    assert (code, "outcome   READY" in out) == (0, True)


def over() -> list[dict[str, object]]:
    """The events of a failed start whose process, of this machine and boot, is gone."""
    here = {"host": os.uname().nodename, "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    return [{**event, **here, "pid": 1 << 22} for event in failed_start()]


def test_a_run_that_is_named_is_told_though_it_is_over(probe: Probe, write_run: WriteRun, tmp_path: Path) -> None:
    done = probe("watch", write_run(tmp_path / "runs" / "night-1", over()))

    assert (done.returncode, done.stderr) == (1, "")
    assert "rest = 21.697 - 93.999 x (1 - 0.550)" in done.stdout


def test_a_server_that_is_up_is_said_to_be_at_once(start: Start, replay: Replay) -> None:
    server = replay(READY, "car", "--linger", "30")
    said(start("watch", "runs"), "outcome   READY")

    code, out = ended(start("watch", "runs"))

    assert server.poll() is None
    assert (code, "READY after" in out, "now ended" in out) == (0, True, False)


def test_a_launcher_without_a_rank_is_followed_and_the_ranks_are_counted(start: Start, replay: Replay) -> None:
    replay(READY, "car", "--until", "scheduler.init", factor="0.05")
    watching = start("watch", "runs", "--timeout", "20", "--interval", "0.1")

    assert "no rank" in said(watching, "no rank")
    watching.kill()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-"], "tee server.log"),
        (["--timeout", "soon"], "'soon' is no number of seconds"),
        (["--timeout", "nan"], "'nan' is no number of seconds"),
        (["--interval", "0"], "'0' is no number of seconds"),
        (["--interval", "0.01"], "less than 0.1"),
        (["--interval", "1e10"], "'1e10' is more than 60 seconds"),
        (["server.log.gz"], "compressed"),
        (["pipe"], "is a pipe"),
        (["binary"], "binary"),
        (["notes.txt"], "no line of it is of SGLang's log"),
        (["a" * 300], "cannot be looked at"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_line(
    probe: Probe, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(LOG.read_bytes()))
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "notes.txt").write_text("nothing of SGLang's\n" * 20)
    os.utime(tmp_path / "notes.txt", (0, 0))
    os.mkfifo(tmp_path / "pipe")

    refused = probe("watch", *words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("sglang-probe watch: ")
    assert told in refused.stderr


def test_a_timeout_says_in_which_state_it_was_left(
    start: Start, replay: Replay, probe: Probe, tmp_path: Path
) -> None:
    replay(READY, "car", "--until", "weights.load")
    wait_for(lambda: has_begun(tmp_path, "weights.load"))
    code, out = ended(start("watch", "runs", "--timeout", "2"))
    nothing = probe("watch", "nowhere", "--timeout", "0.2")

    assert code == NOT_KNOWN
    assert "--timeout 2 has passed" in out
    assert "outcome   STARTING: in weights.load on TP" in out
    assert (NOT_KNOWN, True) == (nothing.returncode, "no run began" in nothing.stdout)


def test_a_long_interval_does_not_outlast_the_timeout(probe: Probe) -> None:
    begun = time.monotonic()
    done = probe("watch", "nowhere", "--interval", "30", "--timeout", "0.3")

    assert done.returncode == NOT_KNOWN
    assert time.monotonic() - begun < 15


def test_a_followed_run_that_fails_is_told_though_another_goes_on(start: Start, replay: Replay) -> None:
    watching = start("watch", "runs")
    said(watching, "waiting")
    replay(FAILED, "first", "--linger", "0", factor="0.05")
    said(watching, "watching first")
    replay(READY, "second", "--linger", "20")
    code, out = ended(watching)

    assert (code, "outcome   FAILED in weights.load on TP1" in out, "second" in out) == (1, True, False)


def test_ctrl_c_leaves_what_was_shown_and_says_130(start: Start, replay: Replay) -> None:
    replay(READY, "car", "--until", "weights.load")
    watching = start("watch", "runs")
    said(watching, "weights.load")
    watching.send_signal(signal.SIGINT)

    assert (130, "") == ended(watching)


def test_a_program_gets_one_object_a_line(start: Start, replay: Replay) -> None:
    watching = start("watch", "runs", "--format", "json")
    said(watching, '"waiting"')
    replay(READY, "car", "--linger", "10")
    code, out = ended(watching)
    objects = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert {"watch/1.0"} == {one["schema"] for one in objects}
    assert ["state"] * (len(objects) - 1) + ["end"] == [one["kind"] for one in objects]
    changes = [change for one in objects[:-1] for change in one["changes"]]
    (loaded,) = [one for one in changes if (one["phase"], one["kind"]) == ("weights.load", "ended")]
    assert ["TP0", "TP1"] == loaded["labels"]
    assert [{"labels": ["TP0", "TP1"], "state": "ready"}] == [
        {key: row[key] for key in ("labels", "state")} for row in objects[-2]["rows"]
    ]
    assert ("ready", 0) == (objects[-1]["outcome"], objects[-1]["exit"])
    assert objects[-1]["explain"]["runs"][0]["run_id"] == "car"


def test_a_log_that_grows_is_followed_over_rotations(start: Start, tmp_path: Path) -> None:
    log, lines = tmp_path / "server.log", LOG.read_text().splitlines(keepends=True)
    watching = start("watch", "server.log", "--interval", "0.1")
    waited = said(watching, "waiting")
    half = next(place for place, line in enumerate(lines) if "Memory pool end" in line)
    log.write_text("".join(lines[:half]))
    begun = said(watching, "weights.load LlamaForCausalLM ended")
    log.rename(tmp_path / "server.log.1")
    last = next(place for place, line in enumerate(lines) if "fired up" in line)
    log.write_text("".join(lines[half:last]))
    time.sleep(0.5)
    (tmp_path / "server.log.1").rename(tmp_path / "server.log.2")
    log.rename(tmp_path / "server.log.1")
    log.write_text("".join(lines[last:]))
    code, out = ended(watching)

    assert "which does not exist yet" in waited
    assert re.search(r"TP[01]", begun)
    assert code == 0
    lines_of_ranks = [line.strip() for line in out.partition("\n\n")[0].splitlines() if " s  TP" in line]
    told = [line.partition(" s  ")[2] for line in lines_of_ranks]
    assert len(set(told)) == len(told)  # what a former file held is not told again
    assert "Read 91 lines of 3 logs" in out
    assert "outcome   READY" in out


def test_a_log_that_is_cut_short_is_read_anew(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = LOG.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: len(lines) // 2]))
    watching = start("watch", "server.log", "--interval", "0.1")
    said(watching, "watching server.log")
    log.write_text("".join(lines))
    code, out = ended(watching)

    assert (code, "outcome   READY" in out) == (0, True)


def test_a_log_of_yesterday_that_does_not_say_how_it_ended_is_not_waited_for(probe: Probe, tmp_path: Path) -> None:
    log, lines = tmp_path / "server.log", LOG.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: next(place for place, line in enumerate(lines) if "Load weight end" in line)]))
    os.utime(log, (0, 0))

    done = probe("watch", log)

    assert (done.returncode, done.stderr) == (NOT_KNOWN, "")
    assert "what became of it is not known" in done.stdout
    assert "see whether the server still runs" in done.stdout


def test_the_age_of_a_log_that_does_not_grow_is_no_time_that_passed(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(LOG.read_bytes())
    os.utime(tmp_path / "server.log", (time.time() - 4000,) * 2)

    out = probe("watch", "server.log").stdout

    times = [float(found) for found in re.findall(r"^ *\+([0-9.]+) s  ", out, re.MULTILINE)]
    assert times == sorted(times)
    assert times[-1] < 600
    assert "(at +" not in out
    assert "TP0, TP1 (2): are ready" in out
    assert max(int(found) for found in re.findall(r"\+(\d+) min", out)) < 4000 // 60


def test_a_line_that_is_being_written_is_no_alarm(start: Start, replay: Replay, tmp_path: Path) -> None:
    replay(READY, "car", "--until", "weights.load")
    wait_for(lambda: has_begun(tmp_path, "weights.load"))
    torn = as_written(failed_start()[1])[:100]
    with next((tmp_path / "runs" / "car").iterdir()).open("ab") as file:
        file.write(torn)
    code, out = ended(start("watch", "runs", "--timeout", "2"))
    watched, _, told = out.partition("--timeout 2 has passed")

    assert code == NOT_KNOWN
    assert "weights.load" in watched
    assert ("LOST" in watched, "or is writing now" in told) == (False, True)


def on_terminal(
    words: list[str], cwd: Path, environment: dict[str, str], act: Callable[[], object]
) -> tuple[int, str]:
    """Run a command on a terminal, do something, and return its exit code and what it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(words, cwd=cwd, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    act()
    written = b""
    try:
        while block := os.read(master, 65536):
            written += block
    except OSError:  # Linux says so when the last writer has closed
        pass
    os.close(master)
    return process.wait(timeout=60), written.decode()


@pytest.mark.parametrize(
    ("environment", "flags", "is_drawn"),
    [
        ({"TERM": "xterm-256color"}, [], True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, [], True),
        ({"TERM": "dumb"}, [], False),
        ({"TERM": "xterm-256color"}, ["--plain"], False),
        ({"TERM": "xterm-256color", "SGLANG_PROBE_PLAIN": "1"}, [], False),
    ],
)
def test_a_terminal_is_drawn_on_in_place_unless_it_cannot_or_shall_not_be(
    words_of: Callable[..., list[str]], replay: Replay, tmp_path: Path, environment: dict[str, str], flags: list[str],
    is_drawn: bool,
) -> None:  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    clean = {name: value for name, value in clean.items() if not name.startswith("SGLANG_PROBE")}
    code, out = on_terminal(
        words_of("watch", "runs", *flags), tmp_path, {**clean, **environment},
        lambda: replay(READY, "car", "--linger", "10"),
    )  # fmt: skip

    assert code == 0
    assert ("\x1b[1A" in out) is is_drawn  # up a line, to draw it again
    assert "\x1b[?1049h" not in out  # never another screen: what was shown last stays
    assert ("\x1b[?25h" in out) is is_drawn  # the cursor is back
    last = ANSI.sub("", out).replace("\r", "")
    assert re.search(r"ready +\d+\.\d s" if is_drawn else r"(is|are) ready; took", last)
    assert re.search(r"^outcome:? +READY", last, re.MULTILINE)
    if environment.get("NO_COLOR"):
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", out)
