"""Out of memory in another program's log: what the message says, and none of SGLang's flags."""

from __future__ import annotations

import io

import pytest

from sglang_probe.collect.logs.read import read_log
from sglang_probe.collect.read import Collected
from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.engine import explain
from sglang_probe.timeline.build import build

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 139.80 GiB"
    " of which 154.31 MiB is free."
)
FRAMES = 'Traceback (most recent call last):\n  File "/opt/venv/lib/python3.12/site-packages/{}/engine.py", line 3, in go\n'


@pytest.mark.parametrize(("program", "advised"), [("vllm", False), ("sglang", True)])
def test_sglang_s_flags_are_advised_for_sglang_alone(program: str, advised: bool) -> None:
    text = FRAMES.format(program) + MESSAGE + "\n"
    logs = read_log(io.BytesIO(text.encode()), "server.log")
    (run,) = explain(build(Collected(runs=(), report=ReadReport(), logs=tuple(logs)))).runs
    levers = [lever for one in run.findings for lever in (one.lever, *one.levers) if lever is not None]

    assert run.findings[0].rule == "out_of_memory"
    assert any(lever.flag is not None for lever in levers) is advised
