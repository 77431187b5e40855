"""The words of a command: which Python it names, and with which flags."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.cli.checks.command import asked_about, split_flags
from sglang_probe.cli.errors import BadUse


@pytest.mark.parametrize(
    ("words", "flags", "program", "is_file"),
    [
        ([], [], None, False),
        (["-I"], ["-I"], None, False),
        (["-IBm", "sglang.launch_server", "-S"], ["-I", "-B"], "sglang.launch_server", False),
        (["-Es", "run.py", "-I"], ["-E", "-s"], "run.py", True),
        (["-Xdev", "-W", "error", "-u", "-c", "x"], ["-X", "dev", "-W", "error", "-u"], "-c", False),
        (["-cpass"], [], "-c", False),
        (["-mx"], [], "x", False),
        (["-i", "-h", "-V", "-S"], ["-S"], None, False),
        (["--check-hash-based-pycs", "never", "-S"], ["--check-hash-based-pycs", "never", "-S"], None, False),
        (["--check-hash-based-pycs=never"], ["--check-hash-based-pycs=never"], None, False),
        (["-", "-I"], [], None, False),
    ],
)
def test_pythons_own_flags_are_told_from_its_programs(
    words: list[str], flags: list[str], program: str | None, is_file: bool
) -> None:
    assert split_flags(words) == (flags, program, is_file)


@given(
    st.lists(
        st.one_of(st.text(max_size=5), st.sampled_from(["-I", "-m", "-X", "-c", "-W", "x", "--", "-"])), max_size=6
    )
)
def test_any_words_have_flags_or_are_refused(words: list[str]) -> None:
    try:
        flags, _, _ = split_flags(words)
    except BadUse:
        return
    it = iter(flags)
    kept = [flag for flag in it if flag not in {"-X", "-W", "--check-hash-based-pycs"} or next(it) is not None]
    assert all(flag.startswith("-") and flag[1] not in "mchiV?x" for flag in kept)


LONG = "'''exec' {python} \"$0\" \"$@\"\n' '''"
"""What pip writes where the path of the interpreter is too long for a first line."""


@pytest.mark.parametrize(
    ("lines", "flags"),
    [
        ("#!{python} -sP", ("-s", "-P")),
        ("#! {python}", ()),
        ("#!/usr/bin/env {python}", ()),
        ("#!/usr/bin/env -S {python} -I", ("-I",)),
        (f"#!/bin/sh\n{LONG}", ()),
    ],
)
def test_a_program_is_traced_to_the_python_of_its_first_line(
    tmp_path: Path, lines: str, flags: tuple[str, ...]
) -> None:
    program = tmp_path / "bin" / "sglang"
    program.parent.mkdir()
    program.write_text(lines.format(python=sys.executable) + "\n")
    program.chmod(0o755)

    asked = asked_about([str(program), "serve", "-I"], tmp_path)

    assert (asked.python, asked.flags, asked.where) == (sys.executable, flags, str(program.parent))


@pytest.mark.parametrize(
    ("before", "variables"),
    [
        (["env"], {}),
        (["/usr/bin/env", "FOO=1", "BAR=a=b", "EMPTY="], {"FOO": "1", "BAR": "a=b", "EMPTY": ""}),
        (["env", "FOO=1", "env", "FOO=/usr/bin/env"], {"FOO": "/usr/bin/env"}),
    ],
)
def test_env_is_seen_through_with_what_it_sets(tmp_path: Path, before: list[str], variables: dict[str, str]) -> None:
    asked = asked_about([*before, sys.executable, "-I", "-m", "sglang.launch_server"], tmp_path)

    assert (asked.python, asked.flags, asked.variables) == (sys.executable, ("-I",), variables)


def test_env_with_a_path_of_its_own_finds_the_python_there(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)

    assert asked_about(["env", f"PATH={tmp_path}", "python"], tmp_path).python == str(tmp_path / "python")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["env", "-i", "python"], "env -i: "),
        (["env", "A=1", "--unset=B", "python"], "env --unset=B: "),
        (["env"], "no command"),
        (["env", "A=1"], "no command"),
        (["env", "=x", "python"], "=x: command not found"),
    ],
)
def test_what_else_env_can_do_is_refused_in_a_line(tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(BadUse, match=re.escape(said)) as refused:
        asked_about(words, tmp_path)

    assert "\n" not in str(refused.value)


def test_without_any_python_on_path_it_is_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert asked_about([], tmp_path).python == sys.executable
