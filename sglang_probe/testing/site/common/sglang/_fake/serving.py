"""After the start: processes that wait, and a launcher that answers two or three URLs."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from threading import Thread
from types import FrameType
from typing import Any

from sglang._fake import phases
from sglang._fake.processes import kill_descendants

logger = logging.getLogger(__name__)


def serve(
    server_args: Any, processes: Sequence[BaseProcess], generate: Callable[[str, int], dict[str, Any]], watch: bool
) -> None:
    """Answer HTTP until told to stop; where the scenario does not serve, end the server now.

    `watch`: the launcher itself notices a dead child, as later releases do.
    """
    _install_handlers()
    if not phases.scenario().serve:
        logger.info("The server is fired up and ready to roll!")
        _stop(0)
    httpd = _http_server(server_args, generate)
    Thread(target=httpd.serve_forever, daemon=True).start()
    logger.info("INFO:     Uvicorn running on http://%s:%d (Press CTRL+C to quit)", *httpd.server_address[:2])
    logger.info("The server is fired up and ready to roll!")
    while True:
        time.sleep(0.05)
        for number, process in enumerate(processes if watch else ()):
            if process.exitcode is not None:
                logger.error(
                    f"Subprocess scheduler_{number} (pid={process.pid}) crashed with exit code {process.exitcode}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                os.kill(os.getpid(), signal.SIGQUIT)


def _install_handlers() -> None:
    def on_sigterm(signum: int | None = None, frame: FrameType | None = None) -> None:
        logger.warning(f"SIGTERM received. {signum=} {frame=}. Draining requests and shutting down...")
        _stop(0)

    def on_sigquit(signum: int | None = None, frame: FrameType | None = None) -> None:
        logger.error(f"SIGQUIT received. {signum=}, {frame=}. It usually means one child failed.")
        kill_descendants(os.getpid(), None)
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda signum, frame: on_sigterm())
    signal.signal(signal.SIGQUIT, on_sigquit)


def _stop(code: int) -> None:
    kill_descendants(os.getpid(), None)
    sys.exit(code)


def _http_server(server_args: Any, generate: Callable[[str, int], dict[str, Any]]) -> Any:
    from http.server import BaseHTTPRequestHandler
    from socketserver import ThreadingTCPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = {"/health": b"", "/health_generate": b"", "/model_info": b"{}", "/get_model_info": b"{}"}
            self._answer(200 if self.path in known else 404, known.get(self.path, b""))

        def do_POST(self) -> None:
            if self.path != "/generate":
                return self._answer(404, b"")
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            number = int(asked.get("sampling_params", {}).get("max_new_tokens", 8))
            return self._answer(200, json.dumps(generate(str(asked.get("text", "")), number)).encode())

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            logger.info(f'INFO:     {self.client_address[0]}:{self.client_address[1]} - {format % args}')

    class Server(ThreadingTCPServer):  # http.server's own looks its host's name up, which may take seconds
        allow_reuse_address = True
        daemon_threads = True

    return Server((server_args.host, server_args.port), Handler)
