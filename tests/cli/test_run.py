"""`sglang-probe run -- CMD...`: becomes CMD, with the doorbell on PYTHONPATH and nothing else changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.cli.run import injected

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]
Show = Callable[..., tuple[list[str], dict[str, str]]]

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
"""A command that says how it was started; -S and -E keep the doorbell itself out of it."""


def started(done: subprocess.CompletedProcess[str]) -> tuple[list[str], dict[str, str]]:
    assert done.returncode == 0, done.stderr
    argv, environment = json.loads(done.stdout)
    return argv, environment


@pytest.fixture
def show(probe: Probe) -> Show:
    """Run a command that says how it was started, under `sglang-probe run`."""

    def run(
        *words: str, options: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        return started(probe("run", *options, "--", sys.executable, "-S", "-E", "-c", SHOW, *words, env=env))

    return run


@pytest.fixture
def directory(probe: Probe) -> str:
    return probe("pythonpath").stdout.strip()


def test_the_doorbell_comes_first_on_pythonpath(show: Show, directory: str) -> None:
    _, environment = show(env={"PYTHONPATH": "/somewhere/else"})

    assert environment["PYTHONPATH"] == os.pathsep.join([directory, "/somewhere/else"])


@pytest.mark.parametrize("before", [{}, {"PYTHONPATH": ""}])
def test_without_a_pythonpath_the_current_directory_stays_off_it(
    show: Show, directory: str, before: dict[str, str]
) -> None:
    _, environment = show(env=before)

    assert environment["PYTHONPATH"] == directory


def test_nested_runs_put_it_there_once(show: Show, directory: str) -> None:
    _, environment = show(env={"PYTHONPATH": os.pathsep.join(["/first", directory, "/last"])})

    assert environment["PYTHONPATH"] == os.pathsep.join([directory, "/first", "/last"])


@given(st.lists(st.sampled_from(["", "/a", "b", "/the/doorbell", "/the/../the/doorbell"]), max_size=6))
def test_any_pythonpath_keeps_its_other_entries_in_order(entries: list[str]) -> None:
    after = injected({"PYTHONPATH": ":".join(entries)}, "/the/doorbell")["PYTHONPATH"].split(":")

    given_any = ":".join(entries) != ""
    assert after[0] == "/the/doorbell"
    assert after[1:] == [entry for entry in entries if given_any and "doorbell" not in entry]


def test_nothing_else_of_the_environment_changes(show: Show) -> None:
    mine = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_PROBE") and k != "PYTHONPATH"}

    _, environment = show(env={"SOME_SETTING": "kept"})

    assert environment.pop("PYTHONPATH")
    environment.pop("LC_CTYPE", None)  # Python's own, in the C locale
    mine.pop("LC_CTYPE", None)
    assert environment == {**mine, "SOME_SETTING": "kept"}


def test_an_inherited_reference_interpreter_is_dropped(show: Show) -> None:
    _, environment = show(env={"SGLANG_PROBE_PYTHON": "/other:cpython-39"})

    assert "SGLANG_PROBE_PYTHON" not in environment


def test_the_options_become_the_agents_settings(show: Show, tmp_path: Path) -> None:
    options = ["--dir", "runs", "--run-id", "night-1"]

    _, environment = show(options=options, env={"SGLANG_PROBE_RUN_MAKER": "b 1 2 made"})

    assert environment["SGLANG_PROBE_DIR"] == str(tmp_path / "runs")
    assert environment["SGLANG_PROBE_RUN_ID"] == "night-1"
    assert "SGLANG_PROBE_RUN_MAKER" not in environment


@pytest.mark.parametrize("words", [["--dir", "x"], ["--", "--run-id"], ["-h"], ["--version"], ["", " ", "a b"]])
def test_the_commands_own_arguments_arrive_untouched(show: Show, words: Sequence[str]) -> None:
    assert show(*words)[0] == words


def test_the_double_dash_may_be_left_out(probe: Probe) -> None:
    argv, _ = started(probe("run", sys.executable, "-S", "-E", "-c", SHOW, "--run-id", "its own"))

    assert argv == ["--run-id", "its own"]


def test_the_exit_code_and_both_streams_are_the_commands(probe: Probe) -> None:
    done = probe("run", "--", "/bin/sh", "-c", "cat; echo err >&2; exit 41", stdin="in")

    assert (done.returncode, done.stdout, done.stderr) == (41, "in", "err\n")


def test_it_becomes_the_command_instead_of_starting_it(start: Start) -> None:
    process = start("run", "--", "/bin/sh", "-c", "echo $$")

    assert process.stdout
    assert int(process.stdout.read()) == process.pid
    process.wait(timeout=60)


def test_signals_are_handled_as_if_the_shell_had_started_it(probe: Probe) -> None:
    interrupt = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"

    assert probe("run", "--", "/bin/sh", "-c", "kill -PIPE $$").returncode == -signal.SIGPIPE
    bare = subprocess.check_output([sys.executable, "-c", interrupt], text=True)  # a shell's background jobs ignore it
    assert probe("run", "--", sys.executable, "-c", interrupt).stdout == bare


def test_the_doorbell_rings_in_the_command_and_not_without_run(probe: Probe, tmp_path: Path) -> None:
    armed = [sys.executable, "-c", "import sys; print('sglang_probe' in sys.modules)"]

    assert probe("run", "--", *armed).stdout == "True\n"
    assert subprocess.check_output(armed, cwd=tmp_path, text=True) == "False\n"


def test_a_gate_that_is_closed_is_said_on_stderr(probe: Probe) -> None:
    done = probe("run", "--", "/bin/echo", "hello", env={"SGLANG_PROBE": "0"})

    assert done.stdout == "hello\n"
    assert "SGLANG_PROBE=0" in done.stderr


@pytest.fixture
def plain_file(tmp_path: Path) -> Path:
    path = tmp_path / "plain"
    path.write_text("echo hello\n")
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["--", ""], "no command given"),
        (["--", "no-such-command-here"], "no-such-command-here: command not found"),
        (["--", "/no/such/file"], "/no/such/file: command not found"),
        (["--", "./plain"], "./plain: not executable"),
        (["--", "/"], "/: not executable"),
        (["--run-id", "../up", "--", "true"], "--run-id '../up'"),
        (["--run-id", "", "--", "true"], "--run-id ''"),
        (["--dir", "plain", "--", "true"], "--dir 'plain' is not a directory"),
        (["--dir", "", "--", "true"], "--dir '' is not a directory"),
        (["--nope", "--", "true"], "--nope"),
    ],
)
def test_bad_use_is_one_line_and_exit_2(probe: Probe, plain_file: Path, words: Sequence[str], said: str) -> None:
    refused = probe("run", *words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"), [("#!/no/such/interpreter\n", "its first line"), ("\x7fELF nonsense", "cannot be started")]
)
def test_a_file_that_cannot_run_is_told_from_one_that_is_not_there(
    probe: Probe, plain_file: Path, content: str, said: str
) -> None:
    plain_file.write_text(content)
    plain_file.chmod(0o755)

    refused = probe("run", "--", "./plain")

    assert refused.returncode == 2
    assert said in refused.stderr
