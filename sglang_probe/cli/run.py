"""Start CMD with the probe injected: put the probe first on PYTHONPATH, then become CMD.

    sglang-probe run -- python -m sglang.launch_server --model-path ... --tp 8

Nothing else of CMD's environment, arguments or output is touched, and its exit code is CMD's. Every process of the
server writes one file in DIR/RUN_ID; `sglang-probe timeline` then shows them. SGLANG_PROBE=0 turns the probe off.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
from collections.abc import Mapping
from typing import NoReturn

from sglang_probe.cli.doorbell import doorbell_directory
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.output import tell
from sglang_probe.cli.paths import absolute, is_directory, is_there
from sglang_probe.events.variables import DIRECTORY, REFERENCE, RUN_ID, RUN_MAKER, SWITCH

_RUN_ID = re.compile(r"[A-Za-z0-9_+=@:-][A-Za-z0-9._+=@:-]{0,99}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the command, and where its events go."""
    parser.usage = f"{parser.prog} [-h] [--dir DIR] [--run-id ID] -- CMD..."
    parser.add_argument(
        "--dir", metavar="DIR", help="directory of runs (SGLANG_PROBE_DIR; default: sglang-probe-runs/ here)"
    )
    parser.add_argument("--run-id", metavar="ID", help="name of the run (SGLANG_PROBE_RUN_ID; default: made up)")
    parser.add_argument("cmd", metavar="CMD...", nargs=argparse.REMAINDER, help="the command and its arguments")


def run(args: argparse.Namespace) -> int:
    """Become CMD."""
    cmd: list[str] = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if not cmd or not cmd[0]:
        raise BadUse("no command given; say: sglang-probe run -- python -m sglang.launch_server ...")
    environment = injected(os.environ, doorbell_directory())
    environment.pop(REFERENCE, None)  # CMD's Python is the reference, not one that was armed on the way here
    if args.dir is not None:
        environment[DIRECTORY] = _directory(args.dir)
    if args.run_id is not None:
        environment[RUN_ID] = _run_id(args.run_id)
        environment.pop(RUN_MAKER, None)  # nobody has claimed this id yet
    if environment.get(SWITCH) == "0":
        tell("sglang-probe run: SGLANG_PROBE=0 is set, so the probe stays off\n")
    _become(cmd, environment)


def injected(environment: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return `environment` with `directory` first on PYTHONPATH, once; an empty entry (the current directory) stays."""
    before = environment.get("PYTHONPATH")
    others = [entry for entry in before.split(os.pathsep) if not _same(entry, directory)] if before else []
    return {**environment, "PYTHONPATH": os.pathsep.join([directory, *others])}


def _same(entry: str, directory: str) -> bool:
    return bool(entry) and os.path.realpath(entry) == os.path.realpath(directory)


def _directory(path: str) -> str:
    if not path or (is_there("--dir", path) and not is_directory("--dir", path)):
        raise BadUse(f"--dir {path!r} is not a directory; name one, or one that can be made")
    return str(absolute("--dir", path))


def _run_id(value: str) -> str:
    if not _RUN_ID.fullmatch(value):
        raise BadUse(f"--run-id {value!r} cannot name a directory of events; use up to 100 letters, digits and ._+=@:-")
    return value


def _become(cmd: list[str], environment: dict[str, str]) -> NoReturn:
    name = cmd[0]
    # Python ignores these two, and exec hands that on: without this CMD would not be as if started by the shell.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(name, cmd, environment)
    except FileNotFoundError as error:
        if shutil.which(name):
            raise BadUse(f"{name}: the interpreter in its first line does not exist; mend that line") from error
        raise BadUse(f"{name}: command not found; check the spelling and PATH") from error
    except PermissionError as error:
        raise BadUse(f"{name}: not executable; chmod +x it, or name the program that runs it") from error
    except OSError as error:
        raise BadUse(f"{name}: cannot be started ({error.strerror}); name the program that runs it") from error
