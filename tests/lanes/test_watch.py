"""Real starts, followed live in a pipe: one that comes up, one that fails, one that loses a rank."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanes.build import Lane
from lanes.runs import Setting, fail_once, lose_a_rank, probe_command, serve_once

pytestmark = [pytest.mark.lane, pytest.mark.parametrize("version", ["0.5.14"])]
Watch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Start `sglang-probe watch` on what a server here will leave; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(path: str, *words: str) -> subprocess.Popen[str]:
        line = probe_command("watch", str(tmp_path / path), *words)
        started.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=60)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    assert err == ""
    return process.returncode, out


def test_a_server_that_comes_up_is_followed_by_its_events_its_log_and_as_json(
    version: str, lane: Callable[[str], Lane], settings: dict[str, Setting], watch: Watch, tmp_path: Path
) -> None:
    events, objects, log = watch("runs"), watch("runs", "--format", "json"), watch("logs/stderr.log")
    serve_once(lane(version), 2, settings["probed"], tmp_path)

    code, out = ended(events)
    assert (code, "outcome   READY after" in out) == (0, True)
    assert "waiting for a run in" in out
    assert re.search(r"TP0(-|, )TP1 \(2\): dist\.init ended; took [\d.]+", out)
    assert re.search(r"TP[01].*: (is|are) ready; took [\d.]+", out)
    code, out = ended(objects)
    assert (0, "ready") == (code, json.loads(out.splitlines()[-1])["outcome"])
    code, out = ended(log)
    assert (code, "outcome   READY" in out) == (0, True)
    assert "weights.load LlamaForCausalLM ended" in out


def test_a_server_that_fails_ends_with_the_cause(
    version: str, lane: Callable[[str], Lane], settings: dict[str, Setting], watch: Watch, tmp_path: Path
) -> None:
    events, log = watch("runs"), watch("logs/stderr.log")
    fail_once(lane(version), 1, settings["nothing left"], tmp_path)

    for process in (events, log):
        code, out = ended(process)
        assert (code, "outcome   FAILED in kv.profile" in out) == (1, True)
        assert "CAUSE: weights exceed the static budget" in out


def test_a_rank_that_is_killed_is_named(
    version: str, lane: Callable[[str], Lane], settings: dict[str, Setting], watch: Watch, tmp_path: Path
) -> None:
    events = watch("runs")
    _, pid = lose_a_rank(lane(version), settings["probed"], tmp_path, "kv.pool", 1)

    code, out = ended(events)
    assert code == 1
    assert re.search(rf"GONE .*\b{pid}\b", out)
    assert "outcome   DIED in kv." in out
    assert re.search(rf"TP1 \(pid {pid}\) ended in\s+kv\.", out)
