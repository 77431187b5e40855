"""Fixtures for the fakes: cards, real wheels, and a clean slate between tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.testing import FakeGpus, Scenario

# Read when pytest collects: the session's own fixture takes every SGLANG_PROBE_* away before the first test.
WHEELS = Path(
    os.environ.get("SGLANG_PROBE_WHEELS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-probe" / "wheels"
)

# SGLang's wheels are per CPython since 0.5.11; only their text is read, so one will do for every Python.
CHOICE = ["--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"]
CHOICE += ["--abi", "cp311", "--abi", "none", "--platform", "manylinux_2_34_x86_64", "--platform", "any"]


@pytest.fixture(scope="session")
def real_wheel() -> Callable[[str], Path]:
    """The wheel of a release of the real SGLang, from SGLANG_PROBE_WHEELS or downloaded into it once."""

    def find(release: str) -> Path:
        found = sorted(WHEELS.glob(f"sglang-{release}-*.whl"))
        return found[0] if found else _download(release)

    return find


def _download(release: str) -> Path:
    WHEELS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--dest", str(WHEELS), *CHOICE, f"sglang=={release}"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = sorted(WHEELS.glob(f"sglang-{release}-*.whl"))
    if not found:
        pytest.fail(
            f"the wheel of sglang {release} is not in {WHEELS} and could not be downloaded, so the fake cannot be "
            f"compared with it; put it there or set SGLANG_PROBE_WHEELS. pip said:\n{done.stderr[-1500:]}",
            pytrace=False,
        )
    return found[0]


@pytest.fixture
def make_gpus(tmp_path: Path) -> Callable[..., FakeGpus]:
    """Make cards in this test's directory."""

    def make(**scenario: object) -> FakeGpus:
        return FakeGpus.create(tmp_path / "gpus", Scenario(**scenario))  # type: ignore[arg-type]

    return make
