"""What every command has in common: names, help, errors, pipes."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import sglang_probe
from sglang_probe.cli import main

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]

PACKAGE = Path(sglang_probe.__file__).resolve().parent
COMMAND_NAMES = [command.name for command in main.COMMANDS]


def test_help_lists_every_command_with_its_summary(probe: Probe) -> None:
    shown = probe("--help")

    assert shown.returncode == 0
    assert [c for c in main.COMMANDS if c.summary not in " ".join(shown.stdout.split())] == []


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_help_of_a_command_is_its_docstring(probe: Probe, name: str) -> None:
    shown = probe(name, "--help")
    docstring = importlib.import_module(f"sglang_probe.cli.{name}").__doc__

    assert shown.returncode == 0, shown.stderr
    assert docstring
    assert " ".join(docstring.split()) in " ".join(shown.stdout.split())


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_help_is_as_wide_as_the_page_and_keeps_the_examples_on_lines_of_their_own(probe: Probe, name: str) -> None:
    shown = probe(name, "--help", env={"COLUMNS": "80"}).stdout.splitlines()
    docstring = importlib.import_module(f"sglang_probe.cli.{name}").__doc__ or ""
    examples = [line for line in docstring.splitlines() if line.startswith("    ") and "  " not in line.strip()]

    assert [line for line in shown if len(line) > 80 and not line.startswith("usage:")] == []
    assert [line for line in examples if line not in shown] == []


@pytest.mark.parametrize("words", [("plan", "--nope"), ("plan", "--tp", "0"), ("timeline", "--nope", "x")])
def test_what_is_wrong_with_a_command_names_that_commands_help(probe: Probe, words: Sequence[str]) -> None:
    refused = probe(*words).stderr

    assert refused.startswith(f"sglang-probe {words[0]}: ")
    assert refused.endswith(f"; see sglang-probe {words[0]} --help\n")


def test_version_is_the_packages(probe: Probe) -> None:
    assert probe("--version").stdout == f"sglang-probe {sglang_probe.__version__}\n"


def test_module_run_and_console_script_are_the_same_program() -> None:
    words = [sys.executable, "-m", "sglang_probe", "--version"]
    shown = subprocess.run(words, cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60)

    assert shown.stdout == f"sglang-probe {sglang_probe.__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command given"),
        (("tineline",), "'tineline'"),
        (("--nope",), "--nope"),
        (("timeline", "--format", "yaml"), "'yaml'"),
        (("schema", "surplus"), "surplus"),
        (("schema", "evil\x1b[2J\nname"), "evil\\x1b[2J\\nname"),
    ],
)
def test_bad_use_is_one_line_on_stderr_and_exit_2(probe: Probe, words: Sequence[str], said: str) -> None:
    refused = probe(*words)

    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert said in refused.stderr
    assert refused.stderr.startswith("sglang-probe")


@pytest.mark.parametrize("name", ["schema", "timeline"])
def test_a_missing_extra_is_named_with_the_command_that_mends_it(probe: Probe, name: str) -> None:
    refused = probe(name, without=["msgspec", "rich"])

    assert refused.returncode == 2
    assert f"{sys.executable} -m pip install ahocorasick-rs msgspec rich" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("--help",), ("pythonpath",), ("run", "--", sys.executable, "-c", "")])
def test_injection_needs_no_extra(probe: Probe, words: Sequence[str]) -> None:
    done = probe(*words, without=["msgspec", "rich"])

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [("schema",), ("--help",)])
def test_a_reader_that_leaves_is_no_error(start: Start, words: Sequence[str]) -> None:
    process = start(*words)
    assert process.stdout
    assert process.stderr
    process.stdout.close()

    assert (process.stderr.read(), process.wait(timeout=60)) == ("", 0)


def test_a_full_disk_behind_stdout_is_said_in_one_line(start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("schema", stdout=full)

    assert process.stderr
    assert process.stderr.read().count("\n") == 1
    assert process.wait(timeout=60) == 2


def test_a_terminal_without_utf8_gets_escapes_instead_of_a_traceback(probe: Probe, tmp_path: Path) -> None:
    root = tmp_path / "h\u00f6he"
    shutil.copytree(PACKAGE, root / "sglang_probe", ignore=shutil.ignore_patterns("_inject", "__pycache__"))
    (root / "sitecustomize").mkdir()
    (root / "sitecustomize" / "__init__.py").write_text("import sglang_probe")

    shown = probe("pythonpath", root=root, env={"PYTHONIOENCODING": "ascii"})

    assert (shown.stdout, shown.stderr) == (f"{tmp_path}/h\\xf6he\n", "")


def _with_closed(words: Sequence[str], closing: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run words in a shell that closes (`>&-`) or fills (`>/dev/full`) some of the three streams first."""
    shell = ["sh", "-c", f'"$@" {closing}', "sh", *words]
    return subprocess.run(shell, cwd=cwd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("words", [("timeline", "run"), ("timeline", "run", "--format", "json"), ("schema",)])
def test_a_closed_stdout_is_said_in_one_line(
    words_of: Callable[..., list[str]], write_run: Callable[..., Path], tmp_path: Path, words: Sequence[str]
) -> None:
    write_run(tmp_path / "run")

    refused = _with_closed(words_of(*words), ">&-", tmp_path)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "stdout is closed" in refused.stderr


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_goes_to_stderr_where_stdout_is_closed(
    words_of: Callable[..., list[str]], tmp_path: Path, words: Sequence[str]
) -> None:
    shown = _with_closed(words_of(*words), ">&-", tmp_path)

    assert shown.returncode == 0
    assert "sglang-probe" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("closing", ["2>&-", "2>/dev/full", "2>&- <&-"])
@pytest.mark.parametrize("words", [("timeline", "nowhere"), ("tineline",), ("run",), ()])
def test_an_error_that_nobody_can_be_told_of_does_not_go_to_stdout(
    words_of: Callable[..., list[str]], tmp_path: Path, words: Sequence[str], closing: str
) -> None:
    refused = _with_closed(words_of(*words), closing, tmp_path)

    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", "")


def test_a_closed_stdin_matters_only_to_who_reads_it(
    words_of: Callable[..., list[str]], write_run: Callable[..., Path], tmp_path: Path
) -> None:
    write_run(tmp_path / "run")

    shown = _with_closed(words_of("timeline", "run"), "<&-", tmp_path)
    refused = _with_closed(words_of("timeline", "-"), "<&-", tmp_path)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "standard input" in refused.stderr


LONG = "a" * 300


@pytest.mark.parametrize(
    "words", [("timeline", LONG), ("run", "--dir", LONG, "--", "true"), ("demo", "--keep", LONG), ("timeline",)]
)
def test_a_path_that_the_system_refuses_is_one_line(probe: Probe, words: Sequence[str]) -> None:
    refused = probe(*words, env={"SGLANG_PROBE_DIR": LONG})

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "File name too long" in refused.stderr


@pytest.mark.parametrize("words", [("run", "--dir", "x", "--", "true"), ("demo", "--keep", "x"), ("timeline", "x")])
def test_a_current_directory_that_is_gone_is_one_line(
    words_of: Callable[..., list[str]], tmp_path: Path, words: Sequence[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    refused = _with_closed(["sh", "-c", 'rmdir ../gone; "$@"', "sh", *words_of(*words)], "", gone)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
