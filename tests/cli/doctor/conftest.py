"""Pythons to be asked: one with all that is needed, and one with nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import wrapt

from sglang_probe.testing import make_site
from tests.cli.doctor.asking import RELEASE, Doctor, Probe, make_venv


@pytest.fixture
def doctor(probe: Probe) -> Doctor:
    """Run `sglang-probe doctor --format json ARGS` and return what it says; its exit code must be the verdict's."""

    def run(*args: str | Path, **more: Any) -> dict[str, Any]:
        done = probe("doctor", "--format", "json", *args, **more)
        assert done.stderr == ""
        document: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if document["works"] else 1)
        return document

    return run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake SGLang."""
    return make_site(tmp_path_factory.mktemp("fake") / "site", RELEASE)


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with wrapt and structlog alone."""
    directory = tmp_path_factory.mktemp("needed") / "packages"
    directory.mkdir()
    for module in (wrapt, structlog):
        package = Path(str(module.__file__)).parent
        (directory / package.name).symlink_to(package)
        for info in package.parent.glob(f"{package.name}-*.dist-info"):
            (directory / info.name).symlink_to(info)
    return directory


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, site: Path, needed: Path) -> Path:
    """A Python with a fake SGLang and what the probe needs."""
    return make_venv(tmp_path_factory.mktemp("whole") / "env", site, needed)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python with nothing installed."""
    return make_venv(tmp_path / "bare")


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a program and return its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return write
