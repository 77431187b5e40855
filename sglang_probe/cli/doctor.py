"""Say whether injection would work here, and if not, why and what to do.

    sglang-probe doctor                                    the `python` on PATH
    sglang-probe doctor -- /opt/venv/bin/python -I         another one, with its flags
    sglang-probe doctor -- python -m sglang.launch_server --tp 8 ...   that command's Python; no server is started

That Python is started once, as `sglang-probe run` would start it, and asked: no file is left, no CUDA context made, and
nothing of SGLang's imported. Exit code 1 if injection would not work, 0 if it would, with or without warnings.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_probe.cli.checks import gpus, interpreter, packages, place, processes, servers, sglang
from sglang_probe.cli.checks.ask import Answer, ask
from sglang_probe.cli.checks.command import Asked, asked_about
from sglang_probe.cli.checks.model import Check
from sglang_probe.cli.checks.text import checks_text, works
from sglang_probe.cli.doorbell import doorbell_directory
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.output import emit, page_width, wants_colour
from sglang_probe.cli.run import injected
from sglang_probe.events.variables import REFERENCE, SWITCH
from sglang_probe.report.plain import printable_json

SCHEMA = "doctor/1.0"
TIMEOUT_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the command to ask about, and how to answer."""
    parser.usage = f"{parser.prog} [-h] [--format {{text,json}}] [--timeout S] [-- PYTHON [flags...] | -- CMD...]"
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")
    parser.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT_S, metavar="S", help="for that Python to answer (default: 30)"
    )
    parser.add_argument("cmd", metavar="PYTHON", nargs=argparse.REMAINDER, help="the Python, or a whole command")


def run(args: argparse.Namespace) -> int:
    """Print the checks."""
    words: list[str] = args.cmd[1:] if args.cmd[:1] == ["--"] else args.cmd
    if words and not words[0]:
        raise BadUse("'' is no command; say: sglang-probe doctor -- /path/to/python")
    doorbell = doorbell_directory()
    inherited = initial_environment()
    asked = asked_about(words, _cwd())
    answer = ask(asked, _environment(inherited, doorbell) | _kept(asked.variables), args.timeout)
    inherited |= asked.variables
    found = gpus.devices(answer.nvml)
    running = _processes(found)
    checks = _checks(asked, answer, doorbell, inherited, running)
    if args.format == "json":
        document = _document(asked, answer, checks, found, running)
        emit(printable_json(json.dumps(document, indent=2)) + "\n")
    else:
        emit(checks_text(checks, page_width(), colour=wants_colour()))
    return 0 if works(checks) else 1


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to 3600")
    return value


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise BadUse("the current directory is gone; cd to another") from error


def initial_environment() -> dict[str, str]:
    """Return the environment this command was given: where PYTHONPATH names the probe, it was armed itself, and has
    put its own Python into `os.environ`."""
    try:
        words = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    return {
        os.fsdecode(name): os.fsdecode(value) for name, _, value in (word.partition(b"=") for word in words if word)
    }


def _environment(inherited: Mapping[str, str], doorbell: str) -> dict[str, str]:
    """Return what `run` would set, with the probe's switch on: whether it is off is a check of its own."""
    return _kept(injected(inherited, doorbell))


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in {REFERENCE, SWITCH}}


def _processes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    held = gpus.holders(found)
    described = processes.process_facts(held)
    for one in described:
        one["gpus"] = [{"uuid": uuid, "bytes": size} for uuid, size in held.get(one["pid"], {}).items()]
    return described


def _checks(
    asked: Asked, answer: Answer, doorbell: str, inherited: Mapping[str, str], running: list[dict[str, Any]]
) -> list[Check]:
    facts = answer.python
    reference = interpreter.judge_reference(facts, inherited, doorbell)
    return [
        interpreter.judge_python(facts, asked),
        interpreter.judge_flags(facts, asked),
        *place.judge_variables(inherited),
        interpreter.judge_pythonpath(inherited, doorbell),
        *([reference] if reference else []),
        interpreter.judge_doorbell(facts, doorbell, answer.stderr),
        interpreter.judge_sitecustomize(facts, doorbell),
        *packages.judge_packages(facts, asked, has_gpu=bool(answer.nvml is None or answer.nvml["gpus"])),
        *sglang.judge_sglang(facts),
        place.judge_place(place.place_facts(inherited)),
        *gpus.judge_gpus(answer.nvml, gpus.machine_facts(), running),
        *servers.judge_servers(running),
    ]


def _document(
    asked: Asked, answer: Answer, checks: list[Check], found: list[dict[str, Any]], running: list[dict[str, Any]]
) -> dict[str, Any]:
    me = answer.python["interpreter"]
    python = {
        "command": asked.words,
        "how": asked.how,
        "executable": me["executable"],
        "prefix": me["prefix"],
        "version": ".".join(map(str, me["version"])),
        "implementation": me["implementation"],
        "flags": me["flags"],
    }
    return {
        "schema": SCHEMA,
        "works": works(checks),
        "python": python,
        "checks": [
            {"check": one.check, "state": one.state, "says": one.says, "do": one.do, "facts": one.facts}
            for one in checks
        ],
        "gpus": found,
        "processes": running,
    }
