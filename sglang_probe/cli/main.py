"""Where the memory of an SGLang server's GPUs went, told by SGLang's own start-up functions.

Exit codes: 0 done, 1 a finding of severity error, 2 bad use or input.
"""

from __future__ import annotations

import argparse
import importlib
import io
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol, cast

from sglang_probe import __version__
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.output import discard_stdout, emit, tell
from sglang_probe.report.plain import printable

PROG = "sglang-probe"
EXTRA = {"ahocorasick_rs": "ahocorasick-rs", "msgspec": "msgspec", "rich": "rich"}
"""Top-level modules that only the extra `cli` brings, and what each is installed as."""
REPORT_EXTRA = {
    "duckdb": "duckdb",
    "matplotlib": "matplotlib",
    "plotly": "plotly",
    "prometheus_client": "prometheus-client",
    "pyarrow": "pyarrow",
}
"""The same of the extra `report`."""


class Command(NamedTuple):
    """One row of the table of commands."""

    name: str
    module: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("run", "sglang_probe.cli.run", "start a command with the probe injected"),
    Command("doctor", "sglang_probe.cli.doctor", "say whether injection would work here, and if not, why"),
    Command("pythonpath", "sglang_probe.cli.pythonpath", "print the directory to put on PYTHONPATH"),
    Command("targets", "sglang_probe.cli.targets", "print which functions of an SGLang the probe hooks"),
    Command("timeline", "sglang_probe.cli.timeline", "print what every rank's memory was spent on, phase by phase"),
    Command("explain", "sglang_probe.cli.explain", "say why a start failed, and what would make room"),
    Command("diff", "sglang_probe.cli.diff", "say what runs differ in, what it cost, and what explains the outcome"),
    Command("plan", "sglang_probe.cli.plan", "plan another start: what other flags would give, or what it takes"),
    Command("report", "sglang_probe.cli.report", "write a report to a file: charts, tables, a trace, metrics"),
    Command("watch", "sglang_probe.cli.watch", "follow a start live, until the server is ready or has failed"),
    Command("schema", "sglang_probe.cli.schema", "print the JSON Schema of the events"),
    Command("demo", "sglang_probe.cli.demo", "replay a failing 8-GPU start with fakes, no GPU needed"),
)


class CommandModule(Protocol):
    """What a command's module provides; its docstring is the command's help."""

    __doc__: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    chosen = ""
    """The command that was given: argparse tells of its unknown flags in the name of the whole program."""

    def error(self, message: str) -> NoReturn:
        """Print `message` and where the help is, and exit 2."""
        prog = f"{self.prog} {self.chosen}".rstrip()
        self.exit(2, f"{prog}: {printable(message)}; see {prog} --help\n")

    def _print_message(self, message: str, file: object = None) -> None:
        """Print help and versions to stdout as results are, all else to stderr: argparse takes neither for closed."""
        if file is not None and file is sys.stdout:
            emit(message)
        else:
            tell(message)


class Help(argparse.HelpFormatter):
    """Folds the paragraphs of docstrings to the page, and gives the longest command a line.

    What is indented stays as it is written where it fits; else what stands in its second column moves below the first.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = groupby(text.strip("\n").split("\n"), _kind)
        return "\n".join(line for kind, lines in blocks for line in _folded(kind, lines, width, indent))


_COLUMN = re.compile(r"\S  +(?=\S)")
"""What parts two columns of a table."""


def _kind(line: str) -> str:
    """Return what a line of a docstring is: blank, indented, a row of a table, or of a paragraph."""
    if not line.strip():
        return "blank"
    return "indented" if line[0].isspace() else "row" if _COLUMN.search(line) else "paragraph"


def _folded(kind: str, lines: Iterable[str], width: int, indent: str) -> Iterator[str]:
    kept = [f"{indent}{line}".rstrip() for line in lines]
    if kind == "paragraph":
        yield from textwrap.wrap(" ".join(kept), width, subsequent_indent=indent, break_on_hyphens=False)
    elif kind == "row":
        for line in kept:
            yield from textwrap.wrap(line, width, subsequent_indent=" " * _column(line))
    elif max(map(len, kept)) <= width:
        yield from kept
    else:
        yield from (part for line in kept for part in _stacked(line, width))


def _stacked(line: str, width: int) -> Iterator[str]:
    """Put the second column of an indented line below the first."""
    begins = _column(line)
    if not begins:
        yield line
        return
    deeper = " " * (len(line) - len(line.lstrip()) + 4)
    yield line[:begins].rstrip()
    yield from textwrap.wrap(line[begins:], width, initial_indent=deeper, subsequent_indent=deeper)


def _column(line: str) -> int:
    """Return where the second column begins; 0 where there is none."""
    found = _COLUMN.search(line)
    return found.end() if found else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` is without the program's name."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 shows escapes, not a traceback
    with _stopped_by_an_exit() as stopped:
        try:
            code = _run(words)
            emit("")
        except BrokenPipeError:
            discard_stdout()  # the reader left (head, a pager): nothing is wrong
            return 0
        except KeyboardInterrupt:
            return 130
        except Exception:
            if not stopped:
                raise
            return 128 + stopped[0]  # a library was interrupted, and makes of the exit an error of its own
        return code


@contextmanager
def _stopped_by_an_exit() -> Iterator[list[int]]:
    """Make of the signals that end a process an exit, so that what a command began is cleaned up: a temporary file, the
    cursor; yield the numbers of those that came. A command may set handlers of its own inside."""
    came: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        came.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    usual: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ours = [one for one, handler in usual.items() if signal.getsignal(one) == handler]  # nohup ignores one of them
    if threading.current_thread() is not threading.main_thread():
        ours = []  # it may set none
    for one in ours:
        signal.signal(one, stop)
    try:
        yield came
    finally:
        for one in ours:
            signal.signal(one, usual[one])


def _run(words: list[str]) -> int:
    name = next((word for word in words if not word.startswith("-")), None)
    chosen = next((command for command in COMMANDS if command.name == name), None)
    try:
        module = _load(chosen) if chosen else None
        args = _parser(chosen, module).parse_args(words)
        if module is None:
            raise BadUse(f"no command given; see {PROG} --help")
        code = module.run(args)
        emit("")  # what a full disk refuses is refused here, where it can be said
        return code
    except BadUse as error:
        return _complain(chosen, str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = next((extra for extra in (EXTRA, REPORT_EXTRA) if missing in extra), None)
        if extra is None:
            raise
        return _complain(chosen, f"{missing} is missing; {sys.executable} -m pip install {' '.join(extra.values())}")
    except MemoryError:
        return _complain(chosen, "no memory is left to this process; make room, or give fewer runs")
    except SystemExit as exit_:  # argparse: --help, --version and its errors
        return exit_.code if isinstance(exit_.code, int) else 2


def _load(command: Command) -> CommandModule:
    return cast(CommandModule, importlib.import_module(command.module))


def _parser(chosen: Command | None, module: CommandModule | None) -> Parser:
    """Every command is listed, but only the chosen one is imported: the others may lack what they need."""
    parser = Parser(prog=PROG, description=__doc__, formatter_class=Help)
    parser.chosen = chosen.name if chosen else ""
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=module.__doc__ if module and command is chosen else command.summary,
            formatter_class=Help,
            allow_abbrev=False,
        )
        if module and command is chosen:
            module.add_arguments(sub)
    return parser


def _complain(command: Command | None, text: str) -> int:
    """Say on stderr, in one line, what the user can mend."""
    tell(f"{f'{PROG} {command.name}' if command else PROG}: {printable(text)}\n")
    return 2
