"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import jsonschema
import pytest

import sglang_probe
from sglang_probe.events import envelope, names
from sglang_probe.events.jsonschema import event_schema

ROOT = Path(sglang_probe.__file__).resolve().parent.parent

# Not `python -m` with PYTHONPATH: in a checkout that would ring the doorbell in the command itself.
BOOT = """
import sys
sys.path.insert(0, {root!r})
sys.modules.update(dict.fromkeys({without!r}))
from sglang_probe.cli.main import main
sys.exit(main())
"""


def command(*args: str | Path, root: Path = ROOT, without: Sequence[str] = ()) -> list[str]:
    """The words that run `sglang-probe ARGS`, from the package under `root`, as if `without` were not installed."""
    return [sys.executable, "-c", BOOT.format(root=str(root), without=list(without)), *map(str, args)]


def environment(**extra: str) -> dict[str, str]:
    """This environment without settings of the probe, and with `extra`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_PROBE") and k != "PYTHONPATH"}
    return {**clean, **extra}


Probe = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Run `sglang-probe ARGS` in an empty directory and return what it did."""

    def run(
        *args: str | Path,
        env: dict[str, str] | None = None,
        cwd: Path = tmp_path,
        root: Path = ROOT,
        without: Sequence[str] = (),
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*args, root=root, without=without),
            env=environment(**env or {}),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `sglang-probe ARGS` and return the process; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(
        *args: str | Path, stdout: int | TextIO = subprocess.PIPE, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*args),
            env=environment(**env or {}),
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(timeout=60)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


GIB = 1 << 30


def event(seq: int, name: str, **more: object) -> dict[str, object]:
    """One event of a rank whose pid was never alive here, with the whole envelope."""
    whole: dict[str, object] = dict.fromkeys(envelope.WholeEvent.__annotations__)
    role, _, kind = name.removeprefix(names.MEMORY_EVENT_PREFIX).rpartition(".")
    is_memory = role in names.ROLES
    return {
        **whole,
        "schema": names.SCHEMA_VERSION,
        "ts": f"2026-11-29T18:45:{seq:02}.000000000Z",
        "mono_ns": 10**12 + seq * 10**9,
        "level": "error" if kind == "error" else "info",
        "event": name,
        "role": role if is_memory else None,
        "kind": kind if is_memory else None,
        "message": "",
        "run_id": "night-1",
        "seq": seq,
        "host": "node-a",
        "boot_id": "no-boot-of-this-machine",
        "pid": 4711,
        "proc": {"start_ticks": 88, "parent": 1, "role": "scheduler"},
        "rank": {**dict.fromkeys(envelope.Rank.__annotations__), "world": {"rank": 0, "size": 1}},
        "attributes": {},
        "degraded": [],
        **more,
    }


def reading(free_gib: float) -> dict[str, object]:
    """A reading that knows only what is free on a card of 95 GiB."""
    unknown: dict[str, object] = dict.fromkeys(envelope.READING_KEYS)
    return {**unknown, "device_free_bytes": round(free_gib * GIB), "device_total_bytes": 95 * GIB}


def failed_start(**more: object) -> list[dict[str, object]]:
    """A rank whose budget leaves nothing: the story of DESIGN.md in five events."""
    available, pre_load, used = round(21.697 * GIB), round(93.999 * GIB), 0.55
    error = {"id": "e1", "type": "builtins.RuntimeError", "message": "Not enough memory.", "raised_in": "m:f:1"}
    told = {**error, "stacktrace": None}
    terms: dict[str, object] = {
        "available_bytes": available,
        "pre_load_bytes": pre_load,
        "mem_fraction_static": used,
        "slack_bytes": round(pre_load * (1 - used)),
        "rest_bytes": round(available - pre_load * (1 - used)),
        "minimum_viable_fraction": 1 - available / pre_load,
        "deductions": {},
        "verified": True,
    }
    root, profile = {"id": "1", "parent": None}, {"id": "2", "parent": "1"}
    memory = names.memory_event
    before, after = reading(94.466), reading(21.697)
    closed: dict[str, object] = {"after": after, "duration_ns": 10**9, "worker": "target", **more}
    return [
        event(0, names.PROCESS_START, attributes={"versions": {"sglang": "0.5.9"}}),
        event(1, memory("scheduler.init", "begin"), span=root, before=before),
        event(2, memory("kv.profile", "begin"), span=profile, before=after, worker="target"),
        event(3, memory("kv.profile", "end"), span=profile, before=after, outcome="ok", attributes=terms, **closed),
        event(
            4, memory("scheduler.init", "error"), span=root, before=before, outcome="error", exception=told, **closed
        ),
    ]


def as_written(one: dict[str, object]) -> bytes:
    """An event as the agent writes it: without blanks."""
    return json.dumps(one, separators=(",", ":")).encode()


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """Write events as a run directory and return its path; each is checked against the schema first."""
    check = jsonschema.Draft202012Validator(event_schema())

    def write(directory: Path, events: Sequence[dict[str, object]] | None = None, tail: bytes = b"") -> Path:
        events = failed_start() if events is None else events
        for one in events:
            check.validate(one)
        directory.mkdir(parents=True)
        lines = b"".join(as_written(one) + b"\n" for one in events)
        (directory / "node-a.4711.88.jsonl").write_bytes(lines + tail)
        return directory

    return write


@pytest.fixture
def failing() -> list[dict[str, object]]:
    """The events of a start that fails in `kv.profile`."""
    return failed_start()


@pytest.fixture
def words_of() -> Callable[..., list[str]]:
    """The words that run `sglang-probe ARGS`, to stand before another command."""
    return command
