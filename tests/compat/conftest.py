"""A copy of the checkout with an index of its own, so that the job can be run on what a test makes up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from sglang_probe.catalogue.wheels import wheel_of

RELEASE = "0.5.14"
"""The one release of the made-up index."""
Job = Callable[..., "subprocess.CompletedProcess[str]"]


def python_files(version: str) -> dict[str, str | bytes]:
    """Return the Python files of a real release."""
    with zipfile.ZipFile(wheel_of(version)) as archive:
        names = [name for name in archive.namelist() if name.startswith("sglang/srt/") and name.endswith(".py")]
        return {name: archive.read(name) for name in names}


def own_index(directory: Path) -> dict[str, str]:
    """Return the variables that make a directory's `index` the only one, and its `kept` the place of wheels."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(directory / "index"),
        "PIP_CONFIG_FILE": os.devnull,
        "SGLANG_PROBE_WHEELS": str(directory / "kept"),
    }


def run_job(checkout: Path, args: Sequence[str], own: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the job's script as a user does."""
    words = [sys.executable, str(checkout / "compat" / "compat.py"), *args]
    return subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True, timeout=1200)


@pytest.fixture(scope="session")
def written_once(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of the checkout that the job reads and writes, and an index with one real release, which is written."""
    directory = tmp_path_factory.mktemp("compat")
    for name in ("compat", "sglang_probe", "docs"):
        shutil.copytree(root / name, directory / "checkout" / name, ignore=shutil.ignore_patterns("__pycache__"))
    wheel = wheel_of(RELEASE)
    for name in ("index", "kept"):
        (directory / name).mkdir()
        (directory / name / wheel.name).symlink_to(wheel)
    done = run_job(directory / "checkout", ["--write"], own_index(directory))
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture
def copy(written_once: Path, tmp_path: Path) -> Path:
    """The checkout of the test alone; its index and its wheels lie beside it."""
    shutil.copytree(written_once, tmp_path / "own", symlinks=True)
    return tmp_path / "own" / "checkout"


@pytest.fixture
def index(copy: Path) -> Path:
    """The directory that is the package index of the test."""
    return copy.parent / "index"


@pytest.fixture
def job(copy: Path) -> Job:
    """Run `python compat/compat.py ARGS` in the copy, with the made-up index for the only one."""
    return lambda *args: run_job(copy, args, own_index(copy.parent))
