"""A stand-in for SGLang that the scripts can start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

STAND_IN = '''
import http.server, json, os, pathlib, subprocess, sys, time
if "sglang.launch_server" not in sys.argv:
    sys.exit(3)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(os.environ["STAND_IN"]).open("a").write(f"{os.getpid()} {child.pid}\\n")
way, probed = os.environ.get("WAY", ""), "SGLANG_PROBE_DIR" in os.environ
if way == "fails":
    sys.exit("no memory")
if way == "hangs":
    time.sleep(600)
tokens = 7 if probed and way == "differs" else 6
print(f"max_total_num_tokens={tokens}", flush=True)
if probed:
    run = pathlib.Path(os.environ["SGLANG_PROBE_DIR"], os.environ.get("SGLANG_PROBE_RUN_ID", "run"))
    run.mkdir(parents=True)
    run.joinpath("h.1.1.jsonl").write_text('{"event":"e","pid":1,"mono_ns":1,"kind":null}\\n')
class Answers(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"meta_info": {"output_token_logprobs": [[0.0, 11, None]]}}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers)
print("The server is fired up and ready to roll!", file=sys.stderr, flush=True)
server.serve_forever()
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an executable that serves as `PYTHON -m sglang.launch_server` would."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{tmp_path}/stand_in.py" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("STAND_IN", str(tmp_path / "pids"))
    return script
