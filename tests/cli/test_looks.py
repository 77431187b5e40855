"""How texts look: `--plain` and its variable, the ranks that are asked for, and what stderr shows meanwhile."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.cli.looks import PLAIN
from sglang_probe.cli.output import NARROWEST
from sglang_probe.cli.progress import PATIENCE_S
from tests.cli.conftest import ROOT
from tests.cli.test_timeline import on_terminal

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]
RUNS = Path(__file__).parent.parent / "data" / "h200-x2-sglang-0.5.14"
COMMANDS = {
    "timeline": ["timeline", RUNS / "car"],
    "explain": ["explain", RUNS / "car"],
    "diff": ["diff", RUNS / "nocar", RUNS / "car"],
    "plan": ["plan", RUNS / "car", "--mem-fraction-static", "0.8"],
}
each_command = pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)


@each_command
def test_plain_is_a_sentence_a_line_by_flag_and_by_variable(probe: Probe, words: list[str | Path]) -> None:
    usual, plain = probe(*words), probe(*words, "--plain")

    assert (plain.returncode, plain.stderr) == (usual.returncode, "")
    assert probe(*words, env={PLAIN: "1"}).stdout == plain.stdout
    assert probe(*words, env={PLAIN: "0"}).stdout == usual.stdout
    assert "  " not in plain.stdout
    assert "  " in usual.stdout
    assert set(re.findall(r"\d+\.\d{3}\b", usual.stdout)) == set(re.findall(r"\d+\.\d{3}\b", plain.stdout))


@each_command
def test_plain_on_a_terminal_is_what_a_pipe_gets(probe: Probe, start: Start, words: list[str | Path]) -> None:
    assert on_terminal(start, *words, "--plain") == probe(*words, "--plain").stdout


def test_ranks_that_agree_are_one_block_and_all_or_one_can_be_asked_for(probe: Probe) -> None:
    def blocks(*more: str) -> list[str]:
        return re.findall("(?m)^== (.*?):", probe("timeline", RUNS / "car", *more).stdout)

    assert blocks() == ["2 ranks that agree"]
    assert blocks("--all") == ["TP0", "TP1"]
    assert blocks("--rank", "TP1") == ["TP1"]
    assert blocks("--rank", "TP1", "--rank", "TP0") == ["TP0", "TP1"]


def test_a_rank_that_is_not_there_is_refused_with_those_that_are(probe: Probe) -> None:
    told = probe("timeline", RUNS / "car", "--rank", "TP9")

    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "sglang-probe timeline: --rank 'TP9' is none of this run's; its ranks are TP0, TP1\n"


def test_a_rank_may_be_named_by_the_number_that_its_label_alone_ends_in(probe: Probe) -> None:
    told, whole = (probe("timeline", RUNS / "car", "--rank", name) for name in ("1", "TP1"))

    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == whole.stdout


@pytest.mark.parametrize("name", ["9", "P1", "01", "-"])
def test_a_number_that_no_label_ends_in_is_refused_with_the_labels(probe: Probe, name: str) -> None:
    told = probe("timeline", RUNS / "car", f"--rank={name}")

    assert told.returncode == 2
    assert told.stderr.endswith("its ranks are TP0, TP1\n")


@each_command
@pytest.mark.parametrize("width", [NARROWEST, 60, 100])
def test_a_page_is_as_wide_as_its_terminal(start: Start, words: list[str | Path], width: int) -> None:
    seen = on_terminal(start, *words, NO_COLOR="1", COLUMNS=str(width))
    foldable = [line for line in seen.splitlines() if max(map(len, line.split()), default=0) <= width // 2]
    longest = max(map(len, foldable))

    assert 0.8 * width < longest <= width


def stages_on_a_terminal(*seconds: float, fails: bool = False) -> tuple[str, str]:
    """Work for so many seconds, each a stage, with stderr on a terminal; return stdout and what the terminal saw."""
    main, other = pty.openpty()
    seen: list[bytes] = []
    code = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from sglang_probe.cli.progress import stages
with stages() as doing:
    for number, wait in enumerate({seconds!r}):
        doing.at(f"stage [red]{{number}}")
        time.sleep(wait)
    if {fails!r}:
        raise SystemExit(3)
print("the result")
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=other, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(other)
        reader = threading.Thread(target=_drain, args=(main, seen))
        reader.start()
        assert process.stdout is not None
        out = process.stdout.read().decode()
        reader.join()
    os.close(main)
    return out, b"".join(seen).decode()


def _drain(descriptor: int, seen: list[bytes]) -> None:
    while True:
        try:
            seen.append(os.read(descriptor, 65536))
        except OSError:  # the other end was closed
            return
        if not seen[-1]:
            return


def test_what_a_long_command_is_at_is_shown_on_stderr_and_taken_away() -> None:
    out, seen = stages_on_a_terminal(2 * PATIENCE_S, PATIENCE_S)

    assert out == "the result\n"
    assert "stage [red]0" in re.sub("\x1b\\[[0-9;]*m", "", seen)
    assert "stage [red]1" in re.sub("\x1b\\[[0-9;]*m", "", seen)
    assert seen.endswith("\x1b[2K")  # the line is erased


def test_a_short_command_shows_nothing() -> None:
    assert stages_on_a_terminal(0, 0) == ("the result\n", "")


def test_a_command_that_fails_takes_its_line_away() -> None:
    out, seen = stages_on_a_terminal(2 * PATIENCE_S, fails=True)

    assert out == ""
    assert seen.endswith("\x1b[2K")


def test_stages_show_nothing_where_stderr_is_no_terminal() -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from sglang_probe.cli.progress import stages
with stages() as doing:
    doing.at("stage")
    time.sleep({2 * PATIENCE_S})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
