"""Which Python a command would start, with which flags of its own: read from the words, nothing is started."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sglang_probe.cli.errors import BadUse

PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?[a-z]*(?:-dbg|-intel64)?")
_WITH_VALUE = "WX"
_ENDS = "cm"
"""What stands after these belongs to the program, not to Python."""
_KEPT = frozenset("bBdEIOPqRsSuvWX")
_OTHER = frozenset("hix?V")
"""Flags of Python that a question must not carry: help, interaction, a skipped line."""
_RUNNERS = frozenset(
    {"conda", "hatch", "mamba", "nox", "pdm", "pipenv", "pipx", "poetry", "supervisorctl", "supervisord", "tox"}
)
"""Written in Python themselves, they start a program with another one."""
_LONG = "--check-hash-based-pycs"


@dataclass(frozen=True, slots=True)
class Asked:
    """An interpreter, its own flags, and where the command's program would be looked for first."""

    python: str
    flags: tuple[str, ...]
    where: str
    """First directory of sys.path in the real command: the working directory for -m and -c, else the program's."""
    how: str
    """How it was found, for a person."""
    program: str | None = None
    """The module or file it would run."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What `env` sets for it."""

    @property
    def words(self) -> list[str]:
        """What starts the interpreter."""
        return [self.python, *self.flags]

    @property
    def shown(self) -> str:
        """The same, to be typed."""
        return shlex.join(self.words)


def asked_about(words: Sequence[str], cwd: Path) -> Asked:
    """Return the Python that a command starts; without a command, `python` as the shell would find it, or this one.

    Raises:
        BadUse: the command does not exist, or is no Python and no program of one.
    """
    if words:
        return _of_command(words, cwd, depth=0)
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found is not None:
            return Asked(found, (), str(cwd), f"{name} on PATH")
    return Asked(sys.executable, (), str(cwd), "the Python of this command")


def _of_command(words: Sequence[str], cwd: Path, depth: int, search: str | None = None) -> Asked:
    """`search` is a PATH to look in instead of this command's."""
    name = words[0]
    if Path(name).name == "env":
        variables, rest = split_env(words)
        found = _of_command(rest, cwd, depth, variables.get("PATH", search))
        return replace(found, variables={**variables, **found.variables})
    path = _executable(name, search)
    if PYTHON.fullmatch(Path(path).name):
        return _of_python(path, words[1:], cwd)
    if Path(path).name == "sglang-probe":
        raise BadUse(f"{name} is this probe; name what comes after it: doctor -- python -m sglang.launch_server ...")
    if Path(path).name in _RUNNERS:
        raise BadUse(
            f"{name} starts a program with another Python than its own; name that one: doctor -- /path/to/python"
        )
    first = _first_line(path)
    if first and depth < 3:
        found = _of_command(first, cwd, depth + 1, search)
        where = str(Path(path).resolve().parent)
        return replace(found, where=where, how=f"first line of {path}", program=path)
    if PYTHON.fullmatch(Path(path).resolve().name):
        return _of_python(path, words[1:], cwd)
    raise BadUse(f"{name} is no Python; name the one that runs SGLang: sglang-probe doctor -- /path/to/python")


def split_env(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return what the NAME=VALUE words of `env` set, those of an `env` behind it included, and the command after them.

    Raises:
        BadUse: an option of env, or no command.
    """
    variables: dict[str, str] = {}
    at = 1
    while at < len(words) and (Path(words[at]).name == "env" or re.match("[^-=][^=]*=", words[at])):
        if "=" in words[at]:
            name, _, value = words[at].partition("=")
            variables[name] = value
        at += 1
    if at == len(words):
        raise BadUse(
            f"{words[0]} has no command; name one: doctor -- env NAME=VALUE python -m sglang.launch_server ..."
        )
    if words[at].startswith("-"):
        raise BadUse(
            f"{words[0]} {words[at]}: of env the doctor reads NAME=VALUE words alone; leave {words[at]} out,"
            " or name the Python: doctor -- /path/to/python"
        )
    return variables, list(words[at:])


def _executable(name: str, search: str | None = None) -> str:
    try:
        found = shutil.which(name, path=search)
        if found is not None:
            return str(Path(found).absolute())
        there = Path(name).exists()
    except (OSError, ValueError) as error:
        raise BadUse(f"{name}: cannot be looked at: {error}; name a Python that exists") from error
    if there:
        raise BadUse(f"{name} is not a program that this user may start; name a Python, or chmod +x it")
    raise BadUse(f"{name}: command not found; check the spelling and PATH")


def _of_python(path: str, rest: Sequence[str], cwd: Path) -> Asked:
    flags, program, is_file = split_flags(rest)
    where = str((cwd / program).resolve().parent) if is_file and program else str(cwd)
    return Asked(path, tuple(flags), where, "as given", program)


def split_flags(words: Sequence[str]) -> tuple[list[str], str | None, bool]:
    """Return Python's own flags among `words`, the program after them, and whether that is a file.

    Raises:
        BadUse: a flag that no Python has, or one without its value.
    """
    flags: list[str] = []
    left = list(words)
    while left and left[0].startswith("-") and left[0] not in {"-", "--"}:
        word = left.pop(0)
        if word.startswith("--"):
            if word.partition("=")[0] != _LONG:
                raise BadUse(f"{word} is no flag of Python; name the interpreter and its flags, or a whole command")
            flags += [word] if "=" in word else [word, _value(word, left)]
            continue
        kept, end = _short(word, left)
        flags += kept
        if end is not None:
            return flags, end, False
    program = left[0] if left and left[0] not in {"-", "--"} else None
    return flags, program, program is not None


def _short(word: str, left: list[str]) -> tuple[list[str], str | None]:
    """Return what one word of short flags (`-IBm`) leaves to be kept, and the program where it ends the flags."""
    kept: list[str] = []
    for at, letter in enumerate(word[1:], 1):
        if letter in _ENDS:
            program = word[at + 1 :] or _value(f"-{letter}", left)
            return kept, program if letter == "m" else "-c"
        if letter in _WITH_VALUE:
            return [*kept, f"-{letter}", word[at + 1 :] or _value(f"-{letter}", left)], None
        if letter in _KEPT:
            kept.append(f"-{letter}")
        elif letter not in _OTHER:
            raise BadUse(f"-{letter} is no flag of Python; name the interpreter and its flags, or a whole command")
    return kept, None


def _value(flag: str, left: list[str]) -> str:
    if not left:
        raise BadUse(f"{flag} needs a value; name the interpreter and its flags, or a whole command")
    return left.pop(0)


def _first_line(path: str) -> list[str]:
    """Return the words of a script's `#!` line, or nothing: with env and pip's `exec` for long paths seen through."""
    try:
        with Path(path).open("rb") as file:
            lines = file.read(4096).decode("utf-8", "replace").splitlines()[:2]
    except OSError:
        return []
    if not lines or not lines[0].startswith("#!"):
        return []
    try:
        words = shlex.split(lines[0][2:])
        if len(lines) > 1 and lines[1].startswith("'''exec'"):
            return shlex.split(lines[1][len("'''exec'") :])[:1]
    except ValueError:
        return []
    return [word for word in words if word != "-S"] if words and Path(words[0]).name == "env" else words
