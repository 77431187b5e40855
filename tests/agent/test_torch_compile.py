"""torch.compile, run inside hooked methods of a runner, compiles the model that it would compile without the probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanes.build import build_lane
from tests.agent.conftest import ROOT, events, write_module

RUNNER = """
import torch

class Model(torch.nn.Module):
    def __init__(self, runner):
        super().__init__()
        self.runner = [runner]
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.runner[0].scale(x.shape[0])

class ModelRunner:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Model(self)

    def scale(self, rows):
        return 2.0 if rows > 1 else 1.0

    def load_model(self):
        x = torch.ones(4, 8)
        explained = torch._dynamo.explain(self.model)(x)
        compiled = torch.compile(self.model, fullgraph=True, backend="aot_eager")
        return {
            "breaks": explained.graph_break_count,
            "graphs": explained.graph_count,
            "guards": len(explained.out_guards),
            "ops": explained.op_count,
            "same": torch.equal(compiled(x), self.model(x)),
            "recompiled": torch._dynamo.utils.counters["stats"]["unique_graphs"],
        }
"""
CODE = """
import json
from sglang.srt.model_executor import model_runner
runner = model_runner.ModelRunner()
told = runner.load_model()
print(json.dumps([type(vars(model_runner.ModelRunner)["load_model"]).__name__, told]))
"""

Compiled = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    """What torch says of the compilation, in a lane's Python, whose sglang is one made-up module."""
    write_module(tmp_path, "sglang.srt.model_executor.model_runner", RUNNER)
    python = build_lane("0.5.14").python

    def ask(**environ: str) -> tuple[str, dict[str, Any]]:
        path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
        given = {"PYTHONPATH": path, "SGLANG_PROBE_DIR": str(tmp_path / "runs"), **environ}
        command = [str(python), "-W", "ignore", "-c", CODE]
        done = subprocess.run(command, env={**kept, **given}, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        kind, told = json.loads(done.stdout.splitlines()[-1])
        return kind, told

    return ask


@pytest.mark.lane
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="a lane's pins need CPython 3.11")
@pytest.mark.parametrize("pure", ["", "1"])
def test_a_model_compiled_inside_a_hooked_method_has_the_graph_it_has_without_the_probe(
    compiled: Compiled, tmp_path: Path, pure: str
) -> None:
    kind, with_us = compiled(WRAPT_DISABLE_EXTENSIONS=pure)
    assert kind == "Hook"
    assert [event["kind"] for event in events(tmp_path) if event["role"] == "weights.load"] == ["begin", "end"]
    kind, without_us = compiled(SGLANG_PROBE="0")
    assert kind == "function"
    assert with_us == without_us
    assert (with_us["breaks"], with_us["graphs"], with_us["same"]) == (0, 1, True)
