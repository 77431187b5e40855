"""Starting a fake server as a user starts a real one, and looking at it from outside.

    run = FakeServer(tmp_path, scenario, release="0.5.9", pythonpath=[checkout]).run()
    assert run.returncode != 0
    assert "Not enough memory" in run.log
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sglang_probe.testing.core.procfs import living_groups
from sglang_probe.testing.core.scenario import Scenario
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.gpu import FakeGpus

LAST_BREATH_S = 5


class NotReady(RuntimeError):
    """The server ended, or took too long, before it was ready; the message ends with its log."""


@dataclass(frozen=True)
class Run:
    """A fake server that has ended: its exit code (negative: the signal that ended it), its output, its cards."""

    returncode: int
    log: str
    gpus: FakeGpus


class FakeServer:
    """`python -m sglang.launch_server` on fake GPUs; everything of it lies in `directory`.

    `pythonpath` stands before the fake site, as a user puts the probe there; `prefix` before the command, as in
    `["sglang-probe", "run", "--"]`. `arguments` follow `--model-path fake --host 127.0.0.1 --port <free>`.
    """

    def __init__(
        self,
        directory: Path | str,
        scenario: Scenario | None = None,
        *,
        release: str = "0.5.14",
        arguments: Sequence[str] = (),
        pythonpath: Sequence[Path | str] = (),
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        prefix: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory).absolute()
        self.gpus = FakeGpus.create(self.directory / "gpus", scenario)
        self.site = make_site(self.directory / "site", release)
        self.log_path = self.directory / "server.log"
        self.port = free_port()
        self.command = [*prefix, python, "-m", "sglang.launch_server", "--model-path", "fake"]
        self.command += ["--host", "127.0.0.1", "--port", str(self.port), *arguments]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(entry) for entry in (*pythonpath, self.site)),
            **self.gpus.environment,
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, timeout_s: float = 60) -> Run:
        """Start it and wait until it ends by itself. Raises TimeoutError, and ends it, where it takes longer."""
        with self:
            return self.wait(timeout_s)

    def start(self) -> FakeServer:
        """Start it in a session of its own, its output in `log_path`."""
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.directory, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        return self

    @property
    def pid(self) -> int:
        """The launcher's pid."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self, timeout_s: float = 60) -> FakeServer:
        """Wait until it answers `/health`. Raises NotReady where it ends or takes longer."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and self._running():
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        raise NotReady(f"the fake server is not ready:\n{self.log[-4000:]}")

    def wait(self, timeout_s: float = 60) -> Run:
        """Wait until it ends by itself. Raises TimeoutError, with its log, where it takes longer."""
        assert self._process is not None, "not started"
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the fake server still runs after {timeout_s} s:\n{self.log[-4000:]}") from None
        self._let_it_die()
        return Run(code, self.log, self.gpus)

    def stop(self) -> None:
        """End it and everything it started, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._let_it_die()

    def _let_it_die(self) -> None:
        """Wait a moment for what the launcher killed before it ended: until then it holds its memory."""
        until = time.monotonic() + LAST_BREATH_S
        while time.monotonic() < until and any(group == self.pid for group in living_groups()):
            time.sleep(0.005)

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> FakeServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
