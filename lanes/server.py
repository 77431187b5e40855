"""A real SGLang server on the CPU, from start to stop, as a context manager."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lanes.build import Lane, LaneError

HOST: Final = "127.0.0.1"
ENVIRONMENT: Final = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "PYTHONUNBUFFERED": "1",
}
FLAGS: Final = {
    "--device": "cpu",
    "--load-format": "dummy",
    "--attention-backend": "torch_native",
    "--grammar-backend": "none",
    "--mem-fraction-static": "0.1",  # of the host's memory, per rank: a pool on the CPU is filled with zeros
    "--host": HOST,
}
LAUNCH_SERVER: Final = ("{python}", "-m", "sglang.launch_server")
PORTS: Final = range(10_000, 22_000)
READY_WITHIN_S: Final = 240.0
STOP_WITHIN_S: Final = 15.0


@dataclass(frozen=True)
class Answer:
    """What the model said."""

    text: str
    tokens: tuple[int, ...]


class Server:
    """`with Server(lane, tp=2, logs=DIR) as server:` starts it, waits until it answers, and stops it, whatever happens.

    `command` may name the lane's `{python}`, `{bin}` and `{models}`, and so may `extra`: SGLang's flags, which win over
    ours. `launcher` stands before the command, as in `sglang-probe run --`.
    The server is the leader of a process group of its own, and is only ever ended by that group.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        logs: Path,
        tp: int = 1,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = LAUNCH_SERVER,
        extra: Sequence[str] = (),
        launcher: Sequence[str] = (),
    ) -> None:
        self.lane = lane
        self.port = port or free_port()
        self.stdout = logs / "stdout.log"
        self.stderr = logs / "stderr.log"
        self._command = [*launcher, *lane.spelled(command), *self._flags(tp), *lane.spelled(extra)]
        self._env = {**(os.environ if env is None else env), **ENVIRONMENT}
        if tp > 1:
            self._env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(core) for core in range(tp))
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_s = 0.0
        """How long the start took until the server answered; 0 where it never did."""
        self._started = 0.0

    def _flags(self, tp: int) -> list[str]:
        flags = FLAGS | {"--model-path": str(self.lane.model), "--port": str(self.port), "--tp": str(tp)}
        return [*(word for pair in flags.items() for word in pair), "--disable-overlap-schedule"]

    def __enter__(self) -> Server:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return at once."""
        self.stdout.parent.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def returncode(self) -> int | None:
        """How the main process ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """The server's main process, which is also its process group."""
        if self._process is None:
            raise LaneError("the server was not started")
        return self._process.pid

    def ended(self) -> bool:
        """Return whether the main process is gone."""
        return self._process is None or self._process.poll() is not None

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until the server answers; raise LaneError with the end of its output where it ends or takes too long."""

        def answers() -> bool:
            with contextlib.suppress(OSError):  # not listening yet, or not ready: HTTPError is an OSError too
                self._ask("/health", timeout_s=5)
                return True
            return False

        if not wait_until(lambda: answers() or self.ended(), within_s):
            raise LaneError(f"SGLang {self.lane.version} was not ready within {within_s:.0f} s\n{self.tail()}")
        if self.ended():
            raise LaneError(f"SGLang {self.lane.version} ended before it answered\n{self.tail()}")
        self.ready_s = time.monotonic() - self._started

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the server's stderr and where the rest is."""
        text = self.stderr.read_text(errors="replace") if self.stderr.exists() else ""
        return "\n".join([*text.splitlines()[-lines:], f"(all of it: {self.stderr})"])

    def generate(self, prompt: str, new_tokens: int = 16) -> Answer:
        """Return what the model says at temperature 0."""
        sampling = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        asked = {"text": prompt, "sampling_params": sampling, "return_logprob": True}
        try:
            answer = json.loads(self._ask("/generate", asked, timeout_s=120))
        except OSError as error:
            raise LaneError(f"SGLang {self.lane.version} did not answer: {error}\n{self.tail()}") from error
        # Here every release says which tokens; 0.4 has no output_ids, and 0.5.2 puts the prompt's among them.
        tokens = tuple(token for _, token, _ in answer["meta_info"]["output_token_logprobs"])
        return Answer(answer["text"], tokens)

    def info(self) -> dict[str, Any]:
        """Return what the server reports of itself."""
        report: dict[str, Any] = json.loads(self._ask("/get_server_info", timeout_s=30))
        return report

    def stop(self) -> None:
        """End the server: SIGTERM to its main process, which ends its own tree; SIGKILL for what is left."""
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.kill(self.pid, signal.SIGTERM)
        if not wait_until(self._gone, STOP_WITHIN_S):
            self.kill()

    def kill(self) -> None:
        """SIGKILL the whole group at once."""
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.killpg(self.pid, signal.SIGKILL)
        if not wait_until(self._gone, STOP_WITHIN_S):
            raise LaneError(f"processes of group {self.pid} outlive SIGKILL")

    def _gone(self) -> bool:
        return self.ended() and not group_members(self.pid)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy has no business on loopback
        with direct.open(request, timeout=timeout_s) as reply:
            content: bytes = reply.read()
        return content


def free_port() -> int:
    """Return a port of the loopback address that is free now, below those that the kernel hands out by itself.

    SGLang opens a second port 10000 above it.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):  # taken
            probe.bind((HOST, port))
            return port
    raise LaneError(f"no free port in {PORTS}")


def wait_until(condition: Callable[[], bool], within_s: float, every_s: float = 0.1) -> bool:
    """Return whether the condition came true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def group_members(group: int) -> list[int]:
    """Return the pids of a process group that still run; one that ended and was not reaped does not count."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            state, _, process_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                members.append(int(stat.parent.name))
    return members
