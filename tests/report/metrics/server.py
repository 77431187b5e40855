"""A real Prometheus over a file of metrics, asked as Grafana asks it."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

KINDS: Final = {
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "classic": "text/plain; version=0.0.4; charset=utf-8",
}
"""Job -> the content type that the file is sent with to it."""
PATIENCE_S: Final = 30
CONFIG: Final = """
global: {scrape_interval: 1s}
scrape_configs:
"""
JOB: Final = """
  - job_name: %s
    metrics_path: /%s
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


class Prometheus:
    """Asks a server through its HTTP API."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **words: str) -> Any:
        """Return the data of an answer; urllib's errors where there is none, AssertionError where it is a refusal."""
        address = f"{self._base}/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            told = json.load(answer)
        assert "success" == told["status"], told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an instant query gives."""
        return list(self.ask("query", query=expression)["result"])

    def values_of(self, label: str, selector: str) -> list[str]:
        """Return what a variable of a dashboard is filled with."""
        return list(self.ask(f"label/{label}/values", **{"match[]": selector}))


@contextmanager
def scraping(binary: str, directory: Path, text: bytes) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `text` twice, once in either format, until both were taken."""
    with _serving(text) as source:
        config = directory / "prometheus.yml"
        config.write_text(CONFIG + "".join(JOB % (job, job, source) for job in KINDS), encoding="utf-8")
        port = _free_port()
        command = [
            binary, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ]  # fmt: skip
        said = directory / "said"
        with said.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)
            try:
                server = Prometheus(port)
                _wait(server, process, said)
                yield server
            finally:
                process.kill()
                process.wait(timeout=PATIENCE_S)


def _wait(server: Prometheus, process: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, said.read_text()
        try:
            found = server.query("up == 1 and scrape_samples_scraped > 0")
        except OSError:  # it does not listen yet
            found = []
        if len(found) == len(KINDS):
            return
        time.sleep(0.05)
    targets = server.ask("targets")["activeTargets"]
    raise AssertionError([target["lastError"] for target in targets])


@contextmanager
def _serving(text: bytes) -> Iterator[int]:
    """Serve a text, under the name of each kind with its content type, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", KINDS[self.path.strip("/")])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that http.server gives it)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
