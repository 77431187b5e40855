"""The wheel, and an environment that has nothing but it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under test: the one that `make test` built, else built from this checkout."""
    if given := os.environ.get("SGLANG_PROBE_WHEEL"):
        return Path(given)
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=root,
        check=True,
        capture_output=True,
    )
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel in it and none of its dependencies."""
    environment = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True, capture_output=True
    )
    return environment / "bin"
