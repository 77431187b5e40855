"""An SGLang server of any interpreter, on any machine, as a process group that is always ended again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lanes.server import free_port, group_members, wait_until
from sglang_probe.cli.doorbell import doorbell_directory

ROOT: Final = Path(__file__).resolve().parents[1]
HOST: Final = "127.0.0.1"
READY_LINE: Final = b"The server is fired up and ready to roll!"
TO_THE_PROBE: Final = re.compile(r"PYTHONPATH|SGLANG_PROBE(_DIR|_RUN_ID|_RUN_MAKER|_PYTHON)?")
"""Variables that decide whether and where it records."""


def doorbell() -> Path:
    """Return what puts the probe into a server when it leads PYTHONPATH: this checkout, or the installed wheel's."""
    return Path(doorbell_directory())


class BenchError(Exception):
    """A run that could not be made; the text is for a person."""


@dataclass(frozen=True)
class Subject:
    """What is started: SGLang of this interpreter, this model, these flags."""

    python: str
    model: str
    tp: int = 1
    flags: tuple[str, ...] = ()

    def command(self, port: int, *more: str) -> list[str]:
        """Return the words that start it on the loopback address."""
        model = ["--model-path", self.model, "--tp", str(self.tp)]
        place = ["--host", HOST, "--port", str(port)]
        return [self.python, "-m", "sglang.launch_server", *model, *self.flags, *more, *place]


def environment(*first: Path, **more: str) -> dict[str, str]:
    """Return our environment with PYTHONPATH led by these directories, and without what would speak to the probe."""
    kept = {name: value for name, value in os.environ.items() if not TO_THE_PROBE.fullmatch(name)}
    path = [*map(str, first), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    given = {"PYTHONPATH": os.pathsep.join(path)} if path else {}
    return {**kept, **given, "PYTHONUNBUFFERED": "1", **more}


@dataclass
class Served:
    """One start. `start` returns at once; `end` kills the group that it made, whatever became of its leader."""

    command: Sequence[str]
    port: int
    env: Mapping[str, str]
    stdout: Path
    stderr: Path
    """May be the same file as `stdout`."""
    ready_s: float | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _began: float = 0.0

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the server as the leader of a session of its own."""
        self.stdout.parent.mkdir(parents=True, exist_ok=True)
        self._began = time.monotonic()
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._process = subprocess.Popen(
                self.command, env=dict(self.env), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The launcher's pid, which is the group's too."""
        if self._process is None:
            raise BenchError("the server was not started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How the launcher ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def is_ready(self) -> bool:
        """Tell whether the server has said that it is, and remember when we first saw it."""
        if self.ready_s is None and any(READY_LINE in log.read_bytes() for log in (self.stdout, self.stderr)):
            self.ready_s = time.monotonic() - self._began
        return self.ready_s is not None

    def wait(self, condition: Callable[[], bool], within_s: float, every_s: float = 0.05) -> bool:
        """Wait for a condition or the launcher's end; return whether the condition came true."""
        wait_until(lambda: condition() or self.returncode is not None, within_s, every_s)
        return condition()

    def generate(self, prompt: Sequence[int], new_tokens: int = 16, within_s: float = 120) -> list[int]:
        """Return the tokens that follow these at temperature 0."""
        sampling = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        asked = {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True}
        answer = self.ask("/generate", asked, timeout_s=within_s)
        logprobs = answer["meta_info"].get("output_token_logprobs")  # not every release has output_ids beside them
        return [int(token) for _, token, *_ in logprobs] if logprobs else [int(one) for one in answer["output_ids"]]

    def kv_tokens(self) -> int | None:
        """Return the `max_total_num_tokens` that the server has printed."""
        text = b"\n".join(log.read_bytes() for log in (self.stdout, self.stderr))
        printed = re.findall(rb"max_total_num_tokens=(\d+)", text)
        return int(printed[0]) if printed else None

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 10) -> Any:
        """Ask the server; raise BenchError where it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", data=data, headers=headers)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy has no business on loopback
        try:
            with direct.open(request, timeout=timeout_s) as reply:
                return json.loads(reply.read() or b"null")
        except (OSError, ValueError) as error:
            raise BenchError(f"{path} was not answered: {error}\n{self.tail()}") from error

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        text = self.stderr.read_text(errors="replace") if self.stderr.exists() else ""
        return "\n".join([*text.splitlines()[-lines:], f"(all of it: {self.stderr})"])

    def end(self, within_s: float = 20) -> None:
        """SIGKILL the group: every line is on disk by now. Raises BenchError where something outlives that."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.killpg(self.pid, signal.SIGKILL)
        if not wait_until(lambda: self.returncode is not None and not group_members(self.pid), within_s):
            raise BenchError(f"processes of group {self.pid} outlive SIGKILL")


def end_on_sigterm() -> None:
    """Let SIGTERM unwind this process, so that every server and tenant is ended on the way out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def served(subject: Subject, env: Mapping[str, str], logs: tuple[Path, Path], *more: str) -> Served:
    """Return a server of the subject on a free port, not started yet; `logs` are its stdout and stderr."""
    port = free_port()
    return Served(subject.command(port, *more), port, env, *logs)
