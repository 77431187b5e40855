"""Starting an interpreter once, with the probe on its PYTHONPATH, and hearing what it says of itself."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_probe.cli.checks.command import Asked
from sglang_probe.cli.errors import BadUse

MOST_BYTES = 4 << 20
"""An interpreter that says more than this says nothing that is looked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an interpreter said. `nvml` is None where it stopped answering there."""

    python: dict[str, Any]
    nvml: dict[str, Any] | None
    stderr: str


@dataclass(slots=True)
class _Heard:
    out: bytearray
    err: bytearray
    ended: bool = False
    code: int | None = None


def ask(asked: Asked, environment: Mapping[str, str], timeout_s: float) -> Answer:
    """Start the interpreter, wait at most `timeout_s`, and return its facts. It writes no file and no bytecode.

    Raises:
        BadUse: it cannot be started, takes too long, or is no Python.
    """
    mark = secrets.token_hex(8)
    script = "\n".join(_source(name) for name in ("inside_python.py", "inside_nvml.py"))
    words = [*asked.words, "-B", "-c", script, mark, asked.where]
    heard = _listen(words, environment, asked, timeout_s)
    facts = dict(_facts(heard.out, mark.encode()))
    stderr = heard.err.decode("utf-8", "replace").strip()
    if "python" not in facts:
        raise BadUse(_why_no_facts(asked, heard, stderr, timeout_s))
    return Answer(facts["python"], facts.get("nvml"), stderr)


def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _listen(words: list[str], environment: Mapping[str, str], asked: Asked, timeout_s: float) -> _Heard:
    try:
        process = subprocess.Popen(
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that whatever it starts ends with it
        )
    except OSError as error:
        raise BadUse(f"{asked.python}: cannot be started: {error.strerror}; name a Python that runs here") from error
    heard = _Heard(bytearray(), bytearray())
    try:
        _read(process, heard, time.monotonic() + timeout_s)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        heard.code = process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return heard


def _read(process: subprocess.Popen[bytes], heard: _Heard, until: float) -> None:
    """Read both streams until they end, the time is up, or it has said too much."""
    with selectors.DefaultSelector() as selector:
        for pipe, buffer in ((process.stdout, heard.out), (process.stderr, heard.err)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, buffer)
        while selector.get_map() and len(heard.out) + len(heard.err) < MOST_BYTES:
            left = until - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    heard.ended = not _said_too_much(heard)
    if heard.ended:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(until - time.monotonic(), 0.1))


def _said_too_much(heard: _Heard) -> bool:
    return len(heard.out) + len(heard.err) >= MOST_BYTES


def _facts(out: bytes | bytearray, mark: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for line in bytes(out).split(b"\n"):
        if line.startswith(mark):
            _, what, text = line.split(b" ", 2)
            with suppress(ValueError):
                found.append((what.decode(), json.loads(text)))
    return found


def _why_no_facts(asked: Asked, heard: _Heard, stderr: str, timeout_s: float) -> str:
    if _said_too_much(heard):
        return f"{asked.python} printed over {MOST_BYTES >> 20} MiB and no answer; is it a Python?"
    if not heard.ended:
        return f"{asked.shown} did not answer within {timeout_s:g} s; try it by hand, or give it more: --timeout S"
    last = (stderr or heard.out.decode("utf-8", "replace").strip()).rpartition("\n")[2][:200]
    said = f": {last}" if last else " and said nothing"
    return f"{asked.shown} is no Python that works here: it ended with code {heard.code}{said}; name another"
