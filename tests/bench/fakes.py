"""The machine of the recordings, out of fake cards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.served import ROOT
from sglang_probe.testing.core.scenario import MIB, Card, Scenario
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.gpu import FakeGpus

H200 = Card("NVIDIA H200", 143771 * MIB, 615 * MIB, 143156 * MIB, 528 * MIB)


@dataclass(frozen=True)
class Machine:
    """Fake cards with a fake SGLang 0.5.14."""

    gpus: FakeGpus
    env: dict[str, str]

    def bench(self, script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts there."""
        command = [sys.executable, str(ROOT / "bench" / script), *map(str, words)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=180)


@contextmanager
def machine(place: Path, gpus: int) -> Iterator[Machine]:
    """Make one; nothing may be left on its cards at the end."""
    with FakeGpus.create(place / "gpus", Scenario(gpus=gpus, card=H200)) as made:
        site = make_site(place / "site", "0.5.14")
        yield Machine(made, {**os.environ, **made.environment, "PYTHONPATH": str(site)})
        assert all(gpu.processes == {} for gpu in made)
