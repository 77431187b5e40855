"""Out of memory in another program's log: what the message says, and none of SGLang's flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.timeline.build import build

TEXT = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/{}/engine.py", line 3, in go
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 139.80 GiB of \
which 154.31 MiB is free.
"""


@pytest.mark.parametrize(("program", "advised"), [("vllm", False), ("sglang", True)])
def test_sglang_s_flags_are_advised_for_sglang_alone(program: str, advised: bool, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(TEXT.format(program))
    (run,) = explain(build(read([log]))).runs
    levers = [lever for one in run.findings for lever in (one.lever, *one.levers) if lever is not None]

    assert run.findings[0].rule == "out_of_memory"
    assert any(lever.flag is not None for lever in levers) is advised
