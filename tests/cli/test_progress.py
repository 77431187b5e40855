"""The line that shows what a command does is gone, and the cursor back, however the command ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_probe.cli import progress
from tests.cli.conftest import ROOT, environment

WORKING = """
import sys, time
sys.path.insert(0, {root!r})
from sglang_probe.cli import progress
progress.PATIENCE_S = 0.0
progress.STEP_BYTES = 1
def work():
    for _ in range(600):
        time.sleep(0.05)
{body}
"""
STAGES = """
with progress.stages() as doing:
    doing.at("building")
    work()
"""
READING = """
with progress.ReadingBar() as bar:
    bar.begin(100)
    bar.read(10)
    time.sleep(0.01)
    bar.read(10)
    work()
"""
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


@pytest.mark.parametrize("body", [STAGES, READING])
def test_a_command_that_is_told_to_end_leaves_no_line_and_the_cursor_shown(body: str, tmp_path: Path) -> None:
    main, other = pty.openpty()
    code = WORKING.format(root=str(ROOT), body=body)
    env = environment(TERM="xterm-256color")
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=other, stderr=other) as command:
        os.close(other)
        wrote = b""
        while HIDDEN not in wrote:
            wrote += os.read(main, 4096)
        command.send_signal(signal.SIGTERM)
        wrote += _rest(main)
    os.close(main)

    assert command.returncode == 128 + signal.SIGTERM
    assert wrote.rpartition(HIDDEN)[2].count(SHOWN) == 1
    assert b"Traceback" not in wrote


def _rest(terminal: int) -> bytes:
    wrote = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            return wrote
        if not more:
            return wrote
        wrote += more


def test_what_sigterm_did_before_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    before = signal.getsignal(signal.SIGTERM)

    with progress.ReadingBar(), progress.stages():
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before
